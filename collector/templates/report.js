"use strict";
// A mark's own description as a tooltip, for the mouse and for the keyboard.
const tip = document.getElementById("tip");
const described = (target) => {
  if (!(target instanceof Element) || !target.closest(".chart svg")) return null;
  const mark = target.closest("[role=graphics-symbol]") || target.querySelector("[role=graphics-symbol]");
  return mark && mark.closest(".role-mark") ? mark : null;
};
const show = (event) => {
  const mark = described(event.target);
  if (!mark) { tip.hidden = true; return; }
  tip.textContent = mark.getAttribute("aria-label");
  tip.hidden = false;
  const box = mark.getBoundingClientRect();
  const left = box.left + box.width / 2 - tip.offsetWidth / 2;
  tip.style.left = `${Math.max(8, Math.min(left, window.innerWidth - tip.offsetWidth - 8))}px`;
  const above = box.top - tip.offsetHeight - 8;
  tip.style.top = `${above > 4 ? above : box.bottom + 8}px`;
};
document.addEventListener("mouseover", show);
document.addEventListener("focusin", show);
document.addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });
document.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });

// The legend's buttons show and hide a configuration in the charts of their campaign.
for (const button of document.querySelectorAll(".legend button")) {
  button.addEventListener("click", () => {
    const shown = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(shown));
    const charts = button.closest("section").querySelectorAll(`svg [data-series="${button.dataset.series}"]`);
    for (const mark of charts) mark.classList.toggle("hidden", !shown);
  });
}
