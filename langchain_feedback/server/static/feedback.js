/* langchain-feedback: sends what people do with an answer. No cookies, no framework.
<script src="https://host/feedback/v1/feedback.js" defer></script>  (or data-feedback-url="...")
<article data-feedback-token="{{ token }}">       one answer; may be added later
  <p data-feedback-answer>...</p>                 what is copied; else the article
  <a data-feedback-source="chunk-id" href="...">  the sources, in the order shown
  <textarea data-feedback-text></textarea>        goes with the button pressed
  <button data-feedback-signal="thumbs_up">       thumbs_down, copy, regenerate, correction,
                                                  wrong_source (inside a source), or
                                                  rating with data-feedback-rating="4"
A pressed button gets data-feedback-sent. The page's CSP needs connect-src for the host. */
(() => {
  const d = document, script = d.currentScript || d.querySelector('script[src*="feedback.js"]');
  const url = script.dataset.feedbackUrl ||
    script.src.replace(/(v1|static)\/feedback\.js.*/, "v1/signals");
  const TOKEN = "[data-feedback-token]", SOURCE = "[data-feedback-source]";
  const sent = new Map(), seen = new Map(), now = () => performance.now();
  const id = () => crypto.randomUUID?.() ||  // HTTPS and localhost only
    crypto.getRandomValues(new Uint32Array(4)).join("-");

  // Once for each slot; without one, unless it says the same again: a double click is one.
  const send = (token, slot, event) => {
    const said = slot ? "" : JSON.stringify(event), key = [token, slot, event.target].join();
    if (sent.get(key) === said) return;
    sent.set(key, said);
    const body = JSON.stringify({events: [
      {event_id: id(), token, client_time: new Date().toISOString(), ...event}]});
    // As text/plain: no preflight, and it goes out while the page is left.
    if (!navigator.sendBeacon?.(url, body))
      fetch(url, {method: "POST", body, keepalive: true, mode: "no-cors"}).catch(() => {});
  };

  const click = event => {
    const near = what => event.target.closest(what), box = near(TOKEN);
    if (!box || event.button > 1) return;
    const token = box.dataset.feedbackToken, target = near(SOURCE)?.dataset.feedbackSource;
    const button = near("[data-feedback-signal]");
    if (button) {
      if (event.button) return;
      const {feedbackSignal: signal, feedbackRating: rating} = button.dataset;
      const text = box.querySelector("[data-feedback-text]")?.value.trim() || undefined;
      button.dataset.feedbackSent = "";
      send(token, "", {signal, target, rating: rating && +rating,
        [signal == "correction" ? signal : "comment"]: text});
    } else if (target) {
      const all = new Set([...box.querySelectorAll(SOURCE)].map(a => a.dataset.feedbackSource));
      send(token, "click", {signal: "source_click", target, rank: [...all].indexOf(target)});
    }
  };
  d.addEventListener("click", click, true);
  d.addEventListener("auxclick", click, true);

  d.addEventListener("copy", () => {
    const chosen = getSelection(), node = chosen.anchorNode;
    const box = (node?.closest ? node : node?.parentElement)?.closest(TOKEN);
    const whole = (box?.querySelector("[data-feedback-answer]") || box)?.innerText.trim().length;
    const copied = chosen.toString().trim().length;
    if (box && copied && copied >= Math.min(20, whole / 4))
      send(box.dataset.feedbackToken, "copy", {signal: "copy"});
  });

  // How long each answer was in sight, told once: when the page is first left.
  const tick = (one, shown) => {
    if (one.since) one.ms += now() - one.since;
    one.since = (one.shown = shown) && !d.hidden && now();
  };
  const watch = new IntersectionObserver(entries => entries.forEach(entry => {
    const token = entry.target.dataset.feedbackToken;
    seen.has(token) || seen.set(token, {ms: 0});
    tick(seen.get(token), entry.isIntersecting);
  }));
  const look = leaving => seen.forEach((one, token) => {
    tick(one, one.shown);
    if (leaving && one.ms) send(token, "dwell",
      {signal: "dwell", ms: Math.round(Math.min(one.ms, 12e4))});
  });
  d.addEventListener("visibilitychange", () => look(d.hidden));
  addEventListener("pagehide", () => look(true));
  const find = () => d.querySelectorAll(TOKEN).forEach(box => watch.observe(box));
  new MutationObserver(find).observe(d,
    {childList: true, subtree: true, attributeFilter: ["data-feedback-token"]});
  find();
})();
