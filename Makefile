# The commands of the README. What they do is in xtask/; this file only names it.
.DEFAULT_GOAL := help
.PHONY: help run test setup fmt lint audit docs fuzz pauses bench capacity reports book charts dist \
	reproduce clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ## builds for a first look, then starts everything on embedded defaults; Ctrl-C drains and stops it
	cargo run --profile quick --locked --package tidegate -- serve

test: setup lint ## everything that CI runs: installs what is missing, all checks, all tests
	cargo xtask deny
	cargo xtask book --look
	cargo xtask test
	cargo xtask clients

fmt: ## formats the code
	cargo fmt --all

lint: ## formatting, clippy, documentation, the rules of the house
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked --features tidegate-fuzz/campaign -- -D warnings
	@# What is checked above is the binary without Kafka. With --examples cargo chooses features as for tests, and checks no more.
	cargo clippy --workspace --bin tidegate --examples --locked --features tidegate/kafka,tidegate-fuzz/campaign -- -D warnings
	@# As above.
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --lib --bin xtask --examples --no-deps --locked --document-private-items
	cargo xtask tidy
	cargo xtask clients --lint
	cargo xtask console --lint

audit: ## dependencies against the advisory database (needs the network)
	cargo xtask deny --all

docs: ## the code's documentation, in target/doc
	cargo doc --workspace --no-deps --locked

fuzz: ## every parser for a minute
	cargo xtask fuzz --seconds 60

reports: setup ## the five performance reports, run again in 40 minutes: docs/reports/ (one row: ROW=limiter-baseline)
	cargo xtask reports $(ROW)

setup: ## installs the Debian packages, Python packages and tools that are missing
pauses: setup ## the tests of sockets and stores, while single threads stand still for up to a second
bench: setup ## the table of docs/benchmarks.md, against nginx, throttlecrab and Redis
capacity: setup ## where this machine's tidegate saturates, and why: docs/capacity.md
book: ## all pages, with a search that needs no network: target/book/html
charts: ## for who changes the Helm chart: lint, manifests, their schemas; builds Helm and kubeconform at the first call
dist: ## what is shipped: binary, debug information, .tar.gz, .deb, .rpm, image, wheel, npm package, list of parts, clients: target/dist
reproduce: setup ## what is shipped, built twice in two folders, byte by byte: takes as long as two release builds

setup pauses bench capacity book charts dist reproduce:
	cargo xtask $@
	@if [ $@ = dist ]; then cargo xtask clients --pack; fi

clean: ## removes what was built, not what was installed
	cargo clean
