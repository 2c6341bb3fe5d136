// Shows times in the zone of the reader, and keeps what a reader is using while parts of a page refresh.
(function () {
  "use strict";

  function localise(root) {
    root.querySelectorAll("time[datetime]").forEach(function (time) {
      var at = new Date(time.getAttribute("datetime"));
      if (!isNaN(at)) {
        time.textContent = at.toLocaleString(undefined, { dateStyle: "short", timeStyle: "medium" });
      }
    });
  }

  localise(document);
  document.addEventListener("htmx:load", function (event) {
    localise(event.detail.elt.parentElement || document);
  });

  // A refresh would take the focus, or the selected text, away. A failure has to be seen.
  document.addEventListener("htmx:beforeSwap", function (event) {
    var target = event.detail.target;
    if (event.detail.xhr.status >= 400) {
      return;
    }
    var selection = document.getSelection();
    var isSelecting = selection && !selection.isCollapsed && target.contains(selection.anchorNode);
    if (target !== document.activeElement && target.contains(document.activeElement) || isSelecting) {
      event.detail.shouldSwap = false;
    }
  });

  // The page says so itself when the console does not answer.
  document.addEventListener("htmx:sendError", function (event) {
    var target = event.detail.target;
    if (target && !target.querySelector(".away")) {
      var text = document.createElement("p");
      text.className = "away alarm";
      text.setAttribute("role", "alert");
      text.textContent = "⚠ The console does not answer. This page tries again by itself.";
      target.prepend(text);
    }
  });
})();
