"""The monitor's page: the dataflow in layers, live, and the questions that it answers.

Pure, each a function of what it is given:

- `fold`: which operators are drawn, and which are folded into one box.
- `layers`, `ordering`, `columns`, `layout`: where everything stands, scope inside scope.
- `view`: from what the monitor knows to what the page shows, and what of it has changed.

Around these, in a process of its own (`process`) that strangers reach: `app`, pages and streams as they are asked for by HTTP,
`bounded`, how many may ask and for how long, and `server`, which runs that. In the monitor: `live`, what there is to show, and
`beside`, which starts that process and speaks to it (`wire`). `questions` are the few things that it can ask.
"""
