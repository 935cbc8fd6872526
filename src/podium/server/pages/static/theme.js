// Light or dark as the reader chose before. A plain script in the head, because a module would run
// only after the first paint, and the page would flash.
(() => {
  try {
    const chosen = localStorage.getItem('theme');
    if (chosen === 'light' || chosen === 'dark') {
      document.documentElement.dataset.theme = chosen;
    }
  } catch {
    // Storage is closed to us: the system's own choice stands.
  }
})();
