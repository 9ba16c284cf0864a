// Render all formulas of the page. KaTeX shows formulas with errors as red text.
document.addEventListener("DOMContentLoaded", () => {
  for (const place of document.querySelectorAll(".math")) {
    katex.render(place.textContent, place, {displayMode: place.tagName === "DIV", throwOnError: false});
  }
});
