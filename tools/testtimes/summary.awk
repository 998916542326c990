# Reads the output of `go test` and prints how long each part of the product and
# its slowest packages took. Packages run side by side, so that the sum is more
# than the time that passed. A cached result took no time.

BEGIN {
	module = "magicstick.dev/operator/"
	names = split("control plane,generator,generated code and parity,controllers and guard,commands and magicstick dev,other", order, ",")
}

($1 == "ok" || $1 == "FAIL") && $2 ~ "^" module {
	package = substr($2, length(module) + 1)
	seconds = $3 ~ /^[0-9.]+s$/ ? $3 + 0 : 0
	name = part(package)
	count[name]++
	sum[name] += seconds
	if ($3 == "(cached)") cached[name]++
	time[package] = seconds
}

END {
	for (i = 1; i <= names; i++) {
		name = order[i]
		if (count[name])
			printf "==> %-28s %7.1f s in %d packages%s\n", name, sum[name], count[name], cached[name] ? " (" cached[name] " cached)" : ""
	}
	for (shown = 0; shown < 5; shown++) {
		slowest = ""
		for (package in time)
			if (time[package] > 0 && (slowest == "" || time[package] > time[slowest])) slowest = package
		if (slowest == "") break
		if (shown == 0) print "==> slowest packages"
		printf "==> %-28s %7.1f s\n", slowest, time[slowest]
		delete time[slowest]
	}
}

function part(package) {
	if (package ~ /^(handwritten|tools)\/controlplane/) return "control plane"
	if (package ~ /^tools\/specgen/) return "generator"
	if (package ~ /^(generated|handwritten\/(validate|catalogs))/) return "generated code and parity"
	if (package ~ /^(cmd|handwritten\/dev)/) return "commands and magicstick dev"
	if (package ~ /^handwritten/) return "controllers and guard"
	return "other"
}
