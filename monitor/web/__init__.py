"""Monitor's page: the dataflow in layers, live, and answers to questions.

Pure, each a function of what it is given:

- `fold`: which operators are drawn, and which are folded into one box.
- `layers`, `ordering`, `columns`, `layout`: where everything stands, scope inside scope.
- `view`: from what the monitor knows to what the page shows, and what of it has changed.

Around these: `app`, the pages and streams as they are asked for by HTTP. `runtime.page` runs it beside a monitor.

Enters: what the coordinator knows, HTTP requests. Leaves: drawings, JSON, events, metrics.
"""
