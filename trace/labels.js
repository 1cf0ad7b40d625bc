"use strict";
// Keeps the labels of the timeline's rows in sight where it is wider than the window.
(() => {
  const svg = document.querySelector("svg.timeline"), rows = svg.querySelector(".rows"), around = svg.closest(".scroll");
  const stay = () => {
    const moved = around.scrollLeft * (svg.viewBox.baseVal.width / svg.getBoundingClientRect().width);
    rows.setAttribute("transform", `translate(${moved} 0)`);
    rows.querySelector(".paper").setAttribute("display", moved > 0 ? "inline" : "none");
  };
  around.addEventListener("scroll", stay);
  addEventListener("resize", stay);
})();
