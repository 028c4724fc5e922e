"use strict";
// A later page takes the place of this one, unless somebody is typing: then when he has ended.
(() => {
  const failed = document.querySelector(".notice[role=alert]") ? " failed" : "";
  const version = document.body.dataset.read + failed;
  new EventSource("/events").onmessage = ({ data }) => {
    if (data === version) return;
    const typing = document.activeElement;
    if (typing instanceof HTMLInputElement) typing.addEventListener("blur", () => location.reload(), { once: true });
    else location.reload();
  };
})();
