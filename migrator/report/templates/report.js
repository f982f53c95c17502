"use strict";
/* Filters of checks and of findings; without it everything is shown. ?status=failed&check=text&finding=text presets them. */
(function () {
  var asked = new URLSearchParams(location.search);
  document.querySelectorAll("[data-filter]").forEach(function (bar) {
    var name = bar.dataset.filter;
    var items = Array.from(document.querySelectorAll('[data-in="' + name + '"]'));
    var groups = Array.from(document.querySelectorAll('[data-group="' + name + '"]'));
    var text = bar.querySelector("input");
    var status = bar.querySelector("select");
    var said = bar.querySelector("output");
    var words = items.map(function (item) { return item.textContent.toLowerCase(); });
    function apply() {
      var wanted = text.value.trim().toLowerCase().split(/\s+/);
      var shown = 0;
      items.forEach(function (item, number) {
        var fits = (!status || !status.value || item.dataset.status === status.value) &&
          wanted.every(function (word) { return words[number].includes(word); });
        item.hidden = !fits;
        shown += fits ? 1 : 0;
      });
      groups.forEach(function (group) { group.hidden = !group.querySelector('[data-in="' + name + '"]:not([hidden])'); });
      said.textContent = shown + " of " + items.length + " shown";
    }
    text.value = asked.get(name) || "";
    if (status) { status.value = asked.get("status") || ""; if (status.selectedIndex < 0) { status.value = ""; } }
    bar.addEventListener("input", apply);
    bar.addEventListener("reset", function () { text.value = ""; if (status) { status.value = ""; } apply(); });
    bar.querySelector("button").addEventListener("click", function () { bar.dispatchEvent(new Event("reset")); text.focus(); });
    bar.hidden = false;
    apply();
    addEventListener("hashchange", function () { reveal(); });
    function reveal() {
      var target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
      if (target && target.closest("[hidden]")) { bar.dispatchEvent(new Event("reset")); target.scrollIntoView(); }
    }
    reveal();
  });
})();
