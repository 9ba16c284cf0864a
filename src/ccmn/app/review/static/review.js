// Keyboard shortcuts, and page updates without a full reload. Without this script, the buttons work as plain forms.
"use strict";
(() => {
  let queue = Promise.resolve(); // actions run one after the other, in the order of the key presses
  const enqueue = (action) => { queue = queue.then(action).catch(notify); return queue; };
  const notify = (message) => { document.getElementById("notice").textContent = String(message.message || message); };

  async function show(response) {
    if (!response.ok) throw new Error(await response.text());
    const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
    const before = document.getElementById("title")?.textContent, scroll = document.querySelector(".labels")?.scrollTop || 0;
    for (const part of ["header", "main"]) {
      document.querySelector(part).replaceWith(document.adoptNode(fresh.querySelector(part)));
    }
    document.title = fresh.title;
    notify(fresh.getElementById("notice").textContent);
    history.replaceState(null, "", response.url);
    const labels = document.querySelector(".labels"); // the same row keeps its scroll position
    if (labels && before === document.getElementById("title")?.textContent) labels.scrollTop = scroll;
    initialize();
  }

  const load = (url, options) => fetch(url, options).then(show, () => {
    throw new Error("The server does not respond. Your answers are saved. Run `ccmn review` again to continue.");
  });

  function zoom(button) {
    button.setAttribute("aria-pressed", button.getAttribute("aria-pressed") === "false");
    const box = button.parentElement; // the enlarged picture is centered
    box.scrollTo((box.scrollWidth - box.clientWidth) / 2, (box.scrollHeight - box.clientHeight) / 2);
  }

  function press(button) {
    if (button.disabled || button.getAttribute("aria-disabled")) return undefined;
    if (button.classList.contains("zoom")) return zoom(button);
    if (button.tagName === "A") return load(button.href);
    const fields = new URLSearchParams(new FormData(button.form, button));
    return load(button.form.action, { method: "POST", body: fields });
  }

  const chips = () => [...document.querySelectorAll("form.chip")];
  const current = () => document.activeElement.closest("form.chip");

  function move(step) {
    const all = chips().filter((chip) => chip.offsetParent), here = all.indexOf(current());
    const next = all[here < 0 ? (step > 0 ? 0 : all.length - 1) : here + step];
    next?.querySelector("button").focus();
  }

  function act(key) {
    if (key === "u") return current() ? press(current().querySelector("button.ask")) : undefined;
    if (key === "m") return document.getElementById("more-labels")?.toggleAttribute("open");
    if (key === "ArrowUp" || key === "ArrowDown") return move(key === "ArrowDown" ? 1 : -1);
    const button = document.querySelector(`[data-key="${key}"]`);
    return button ? press(button) : undefined;
  }

  const KEYS = [..."123456789", "a", "s", "u", "m", "z", "+", "ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"];
  document.addEventListener("keydown", (event) => {
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (event.target.closest("input, select, textarea") || !document.querySelector("main.review")) return;
    if (event.altKey || event.metaKey || (event.ctrlKey && key !== "z") || !KEYS.includes(key)) return;
    if (event.target.closest(".content") && key.startsWith("Arrow")) return; // arrow keys scroll here
    event.preventDefault();
    enqueue(() => act(key));
  });

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button.zoom");
    if (button) zoom(button);
  });

  document.addEventListener("submit", (event) => {
    if ("plain" in event.target.dataset) return;
    event.preventDefault();
    const button = event.submitter;
    if (button.id === "export") notify("Exporting …");
    enqueue(() => press(button));
  });

  const wait = (ms) => new Promise((done) => setTimeout(done, ms));
  let watching = false;
  async function watch() { // wait until the background training has ended, then reload the page
    if (watching) return;
    watching = true;
    try {
      for (let state = "running"; state === "running"; ) {
        await wait(500);
        state = (await (await fetch("/training")).json()).state;
      }
      await enqueue(() => load(location.href.replace(/notice=\w*/, "")));
    } catch (error) { notify(error); } finally { watching = false; }
  }

  function initialize() {
    document.querySelector("main [data-focus]")?.focus();
    const picture = document.querySelector("img.picture"); // small pictures are enlarged without smoothing
    const sharpen = () => picture.classList.toggle("tiny", picture.naturalWidth < 200);
    if (picture?.complete) sharpen(); else picture?.addEventListener("load", sharpen);
    if (document.getElementById("training")?.dataset.state === "running") watch();
  }
  initialize();
})();
