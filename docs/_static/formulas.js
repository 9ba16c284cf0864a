// Draw every formula of the page. A formula that KaTeX cannot read stays as text, in red.
document.addEventListener("DOMContentLoaded", () => {
  for (const place of document.querySelectorAll(".math")) {
    katex.render(place.textContent, place, {displayMode: place.tagName === "DIV", throwOnError: false});
  }
});
