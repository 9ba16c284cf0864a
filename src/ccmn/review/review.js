// Keys press the buttons of the page, and buttons fetch the next page without a flash. Without this file every button
// still works, as a plain form.
"use strict";
(() => {
  let turn = Promise.resolve(); // one thing after the other: quick keys are not lost, nor do they overtake each other
  const inTurn = (what) => { turn = turn.then(what).catch(say); return turn; };
  const say = (message) => { document.getElementById("notice").textContent = String(message.message || message); };

  async function show(answer) {
    if (!answer.ok) throw new Error(await answer.text());
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const scroll = document.querySelector("aside .wide")?.scrollTop || 0;
    document.querySelector("main").replaceWith(document.adoptNode(fresh.querySelector("main")));
    document.title = fresh.title;
    say(fresh.getElementById("notice").textContent);
    history.replaceState(null, "", answer.url);
    const rates = document.querySelector("aside .wide");
    if (rates) rates.scrollTop = scroll;
    settle();
  }

  const load = (address, options) => fetch(address, options).then(show, () => {
    throw new Error("The server does not answer. What you answered before is saved; start ccmn review again.");
  });

  function press(button) {
    if (button.disabled) return undefined;
    if (button.tagName === "A") return load(button.href);
    const fields = new URLSearchParams(new FormData(button.form, button));
    return load(button.form.action, { method: "POST", body: fields });
  }

  const labels = () => [...document.querySelectorAll("form.label")];
  const current = () => document.activeElement.closest("form.label");

  function move(step) {
    const all = labels(), here = all.indexOf(current());
    const next = all[here < 0 ? (step > 0 ? 0 : all.length - 1) : here + step];
    if (next) (next.querySelector("[aria-pressed=true]") || next.querySelector("button")).focus();
  }

  function act(key) {
    const answer = { y: "yes", n: "no", u: "unsure" }[key];
    if (answer) {
      const label = current() || document.querySelector("form.label.open");
      return label && press(label.querySelector(`button[value=${answer}]`));
    }
    if (key === "ArrowUp" || key === "ArrowDown") return move(key === "ArrowDown" ? 1 : -1);
    const button = document.querySelector(`[data-key="${key}"]`);
    return button ? press(button) : undefined;
  }

  const KEYS = ["y", "n", "u", "a", "z", "ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"];
  document.addEventListener("keydown", (event) => {
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (event.altKey || event.metaKey || (event.ctrlKey && key !== "z") || !KEYS.includes(key)) return;
    if (event.target.closest("blockquote, .wide") && key.startsWith("Arrow")) return; // these scroll
    event.preventDefault();
    inTurn(() => act(key));
  });

  document.addEventListener("submit", (event) => {
    event.preventDefault();
    const button = event.submitter;
    inTurn(() => press(button));
  });

  const wait = (ms) => new Promise((done) => setTimeout(done, ms));
  let watching = false;
  async function watch() { // until the training in the background is over; then the page as it stands
    if (watching) return;
    watching = true;
    try {
      for (let state = "running"; state === "running"; ) {
        await wait(500);
        state = (await (await fetch("/training")).json()).state;
      }
      await inTurn(() => load(location.href.replace(/notice=\w*/, "")));
    } catch (error) { say(error); } finally { watching = false; }
  }

  function settle() {
    document.querySelector("main [data-focus]")?.focus();
    if (document.getElementById("training")?.dataset.state === "running") watch();
  }
  settle();
})();
