// Acts on jobs: what the reader selects, what an act would do, and the act itself, by REST.

/** Nothing yet. */
export function install() {}
