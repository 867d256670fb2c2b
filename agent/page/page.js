"use strict";
// Asks for the page again and puts in what has changed. What is shown as the state holds for as long as the
// gate's own answer would: older than that, it is taken away here, whether or not anything answers.
(() => {
  const EVERY_MS = 2000, WITHIN_MS = 4000;
  const LOST = "NO ANSWER";
  const lost = document.getElementById("lost"), news = document.getElementById("news");
  const given = new Map();
  let ageMs, maxAgeMs, asked, word, answeredAt, gone = false, because = "", busy = false;
  // Two clocks: one stands still while a computer sleeps, the other can be set.
  const now = () => ({ steady: performance.now(), wall: Date.now() });
  const since = (then) => Math.max(performance.now() - then.steady, Date.now() - then.wall);
  const parts = (doc) => doc.querySelectorAll("header[id], section[id], footer[id]");
  const wordOf = (doc) => doc.querySelector("#top .word").textContent;
  // A page that says itself that its evidence is old is no older than the question.
  const ageOf = (doc) => doc.body.classList.contains("old") ? 0 : Number(doc.body.dataset.ageS) * 1000;
  const icon = () => document.querySelector("link[rel=icon]");

  function take(doc, at) {
    ageMs = ageOf(doc);
    maxAgeMs = Number(doc.body.dataset.maxAgeS) * 1000;
    asked = at;
    answeredAt = new Date();
    icon().href = doc.querySelector("link[rel=icon]").href;
    document.title = doc.title;
    const before = word;
    word = wordOf(doc);
    if (before !== undefined && (before !== word || gone)) news.textContent = `${document.querySelector("h1").textContent}: ${word}`;
    if (gone) {
      gone = false;
      lost.textContent = document.getElementById("for").textContent = "";
      document.body.classList.remove("lost");
    }
    document.body.classList.toggle("old", doc.body.classList.contains("old"));
    tab();
  }

  function show(doc) {
    for (const fresh of parts(doc)) {
      const old = document.getElementById(fresh.id), html = fresh.outerHTML;
      if (!old || given.get(fresh.id) === html) continue;
      given.set(fresh.id, html);
      // What somebody is copying stays; the state does not.
      const picked = getSelection();
      if (!picked.isCollapsed && picked.containsNode(old, true) && fresh.id !== "top" && fresh.id !== "engines") {
        given.delete(fresh.id);
        continue;
      }
      for (const open of old.querySelectorAll("details[open][id]")) fresh.querySelector(`#${open.id}`)?.setAttribute("open", "");
      const at = old.contains(document.activeElement) ? [...old.querySelectorAll("a, summary, [tabindex]")].indexOf(document.activeElement) : -1;
      const scrolled = [...old.querySelectorAll(".scroll")].map((box) => box.scrollLeft);
      old.replaceWith(fresh);
      if (at >= 0) fresh.querySelectorAll("a, summary, [tabindex]")[at]?.focus({ preventScroll: true });
      fresh.querySelectorAll(".scroll").forEach((box, i) => { box.scrollLeft = scrolled[i] ?? 0; });
    }
  }

  function lose() {
    gone = true;
    given.clear();
    document.body.classList.add("lost");
    for (const each of document.querySelectorAll("#top, .card")) {
      each.classList.remove("good", "soft", "bad", "wait");
      each.classList.add("gone");
    }
    document.querySelector("#top .word").textContent = LOST;
    document.querySelector("#top .state span").textContent = "?";
    for (const each of document.querySelectorAll(".card .word, #pairs .verdict")) each.textContent = "? UNKNOWN: NO ANSWER";
    for (const each of document.querySelectorAll(".card .since")) each.textContent = "What was last known:";
    for (const each of document.querySelectorAll(".card .todo")) each.textContent = "Find out why the node does not answer.";
    for (const each of document.querySelectorAll(".card .facts")) each.remove();
    for (const each of document.querySelectorAll(".tile .verdict, #findings .verdict")) each.textContent = `was ${each.textContent.trim()}`;
    document.title = `? ${LOST} · ${document.querySelector("h1").textContent}`;
    icon().href = icon().href.replace(/fill='%23[0-9a-f]+'/, "fill='%23333'");
  }

  // Timers of a tab that nobody looks at run late: it does not say that all is well.
  function tab() {
    if (document.hidden && !gone) document.title = `nodegate · ${document.querySelector("h1").textContent}`;
  }

  function watch() {
    const old = since(asked) + ageMs;
    if (old <= maxAgeMs && !gone) return;
    if (!gone) lose();
    const at = answeredAt.toISOString().slice(11, 19);
    // Told aloud once; how long it lasts is only shown.
    const text = `No answer since ${at} UTC${because}. What is below is old. See whether the node is up: ping it, then systemctl status nodegate there.`;
    if (lost.textContent !== text) lost.textContent = text;
    document.getElementById("for").textContent = `${Math.round(since(asked) / 1000)} s without an answer`;
  }

  async function ask() {
    if (busy) return;
    busy = true;
    const at = now();
    try {
      const reply = await fetch(location.href.split("#")[0], { cache: "no-store", signal: AbortSignal.timeout(WITHIN_MS) });
      if (!reply.ok) throw new Error(`HTTP ${reply.status}`);
      const doc = new DOMParser().parseFromString(await reply.text(), "text/html");
      if (!doc.querySelector("#top .word") || !doc.body.dataset.maxAgeS) throw new Error("not this page");
      // An answer that took too long is as old as its question.
      if (since(at) + ageOf(doc) <= Number(doc.body.dataset.maxAgeS) * 1000) {
        take(doc, at);
        show(doc);
      }
      because = "";
    } catch (error) {
      because = error.message.startsWith("HTTP") || error.message === "not this page" ? `: ${error.message}` : "";
    } finally {
      busy = false;
      watch();
    }
  }

  // The first page's own question is as old as the navigation.
  const begun = { steady: 0, wall: Date.now() - performance.now() };
  take(document, begun);
  for (const part of parts(document)) given.set(part.id, part.outerHTML);
  setInterval(ask, EVERY_MS);
  setInterval(watch, 500);
  for (const event of ["visibilitychange", "pageshow", "online"]) addEventListener(event, () => { watch(); tab(); ask(); });
})();
