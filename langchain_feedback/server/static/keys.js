// Keys for speed. Each does what a button or box on the page does, and nothing more.
(() => {
  const chunks = [...document.querySelectorAll(".chunk")].filter((one) => one.querySelector("input"));
  const on = document.getElementById("keys-on");
  let here = -1;

  const press = (key) => {
    const found = document.querySelector(`[data-key="${key}"]`);
    if (!found) return false;
    if (found.tagName === "FORM") found.requestSubmit();
    else found.click();
    return true;
  };

  const move = (step) => {
    if (!chunks.length) return;
    chunks[here]?.classList.remove("is-here");
    here = Math.min(Math.max(here + step, 0), chunks.length - 1);
    chunks[here].classList.add("is-here");
    chunks[here].querySelector("input").focus({ preventScroll: true });
    chunks[here].scrollIntoView({ block: "nearest" });
  };

  let sent = false; // a second key while the page is leaving would act on the next item
  document.addEventListener("submit", () => { sent = true; });
  window.addEventListener("pageshow", () => { sent = false; });

  // Whoever talks to his computer, or types with one hand, turns single keys off for good.
  try {
    if (on) on.checked = localStorage.getItem("lcf-keys") !== "off";
    on?.addEventListener("change", () => localStorage.setItem("lcf-keys", on.checked ? "on" : "off"));
  } catch { /* storage is forbidden here: it is kept for this page */ }

  document.addEventListener("keydown", (event) => {
    const field = event.target.closest("textarea, select, input:not([type=checkbox])");
    if (event.key === "Escape" && field) field.blur();
    if (sent || event.repeat && event.key.length === 1 || field || (on && !on.checked) || event.ctrlKey || event.metaKey || event.altKey) return;
    let done = true;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") move(event.key === "ArrowDown" ? 1 : -1);
    else if (event.key === "Enter" && chunks[here]?.contains(event.target)) chunks[here].querySelector("input").click();
    else if (event.key === "/") document.getElementById("find")?.focus();
    else if (event.key === "?") document.getElementById("help")?.toggleAttribute("open");
    else if ("123nsu".includes(event.key)) done = press(event.key);
    else done = false;
    if (done) event.preventDefault();
  });
})();
