"use strict";
// A later page replaces this one at once, or when someone who is typing has finished.
(() => {
  const failed = $("failed") ? " failed" : "";
  const version = document.body.dataset.version + failed;
  new EventSource("/events").onmessage = ({ data }) => {
    if (data === version) return;
    const typing = document.activeElement;
    if (typing instanceof HTMLInputElement) typing.addEventListener("blur", () => location.reload(), { once: true });
    else location.reload();
  };
})();
