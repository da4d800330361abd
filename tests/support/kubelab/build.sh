#!/usr/bin/env bash
# Build and gather the programs of a small Kubernetes from Debian, into the folder that is given, else
# into $TOPMAST_KUBERNETES, else into the user's cache.
#
# Nothing is installed: packages are fetched with their signatures checked and unpacked below the
# folder. Debian ships no server of Kubernetes, so that is built from its source package, which takes
# about five minutes on two cores and 3 GB; at the end 0.4 GB stay. A second run costs nothing.
set -euo pipefail

PACKAGES=(etcd-server containerd runc containernetworking-plugins)
BUILD_PACKAGES=(golang-1.19-go golang-1.19-src golang-github-modern-go-reflect2-dev)
PROGRAMS=(kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl)

folder=${1:-${TOPMAST_KUBERNETES:-${XDG_CACHE_HOME:-$HOME/.cache}/topmast-kubernetes}}
folder=$(mkdir -p "$folder" && cd "$folder" && pwd)
ready=$folder/ready
[ -e "$ready" ] && exit 0

# One build at a time: the second one waits, and finds what the first one made.
exec 9>"$folder/lock"
flock 9
[ -e "$ready" ] && exit 0

need() {
  local missing=()
  for program in "$@"; do command -v "$program" >/dev/null || missing+=("$program"); done
  [ ${#missing[@]} = 0 ] || { echo "cannot build Kubernetes: no ${missing[*]} on this machine" >&2; exit 1; }
}
need apt-get dpkg-deb dpkg-source flock

# Lists of our own: the machine's need not have sources, and stay as they are. Another release than
# bookworm has no source package of Kubernetes, or no Go that it can be built with.
apt=(apt-get -qq -o Dir::Etc::sourcelist="$folder/apt/sources.list" -o Dir::Etc::sourceparts=-
  -o Dir::State::lists="$folder/apt/lists" -o Dir::Cache="$folder/apt" -o APT::Sandbox::User=root)

fetch() {
  mkdir -p "$folder/apt/lists/partial" "$folder/apt/archives/partial" "$folder/apt/source"
  local mirror
  # shellcheck disable=SC2016
  mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    awk '$2 == "bookworm" && $3 == "main" { print $1; exit }')
  [ -n "$mirror" ] || { echo "cannot build Kubernetes: this is not Debian 12" >&2; exit 1; }
  printf "%s $mirror bookworm main\n" deb deb-src >"$folder/apt/sources.list"
  echo "fetching packages"
  "${apt[@]}" update
  (cd "$folder/apt/archives" && "${apt[@]}" download "${PACKAGES[@]}" "${BUILD_PACKAGES[@]}")
  (cd "$folder/apt/source" && "${apt[@]}" --download-only source kubernetes)
}

unpack() {
  rm -rf "$folder/debian" "$folder/build"
  mkdir -p "$folder/debian" "$folder/build/root" "$folder/build/go/src/k8s.io"
  for package in "${PACKAGES[@]}"; do
    dpkg-deb -x "$folder"/apt/archives/"$package"_*.deb "$folder/debian"
  done
  for package in "${BUILD_PACKAGES[@]}"; do
    dpkg-deb -x "$folder"/apt/archives/"$package"_*.deb "$folder/build/root"
  done
  source=$folder/build/go/src/k8s.io/kubernetes
  dpkg-source --no-check -x "$folder"/apt/source/kubernetes_*.dsc "$source" >/dev/null
  # The vendored one reads structures of an older Go: the API server would crash after minutes.
  rm -rf "$source/vendor/github.com/modern-go/reflect2"
  cp -r "$folder/build/root/usr/share/gocode/src/github.com/modern-go/reflect2" \
    "$source/vendor/github.com/modern-go/"
}

# The source package leaves out what its own build generates: the schema that the API server serves.
generate() {
  local with_schema
  with_schema=$(grep -rlE '\+k8s:openapi-gen=true' --include=*.go pkg/apis staging/src/k8s.io |
    grep -vE '/(code-generator|sample-apiserver)/' | xargs -n1 dirname | LC_ALL=C sort -u |
    sed -e 's,^staging/src/,k8s.io/kubernetes/vendor/,' -e 's,^pkg/,k8s.io/kubernetes/pkg/,' | paste -sd,)
  echo "building openapi-gen"
  go build -o "$folder/build/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
  "$folder/build/openapi-gen" --logtostderr -i "$with_schema" -p k8s.io/kubernetes/pkg/generated/openapi \
    -O zz_generated.openapi -h vendor/k8s.io/code-generator/hack/boilerplate.go.txt \
    -r "$folder/build/violations" -o "$folder/build/go/src"
}

build() {
  export GOROOT=$folder/build/root/usr/lib/go-1.19 GOPATH=$folder/build/go GOCACHE=$folder/build/cache
  export GO111MODULE=off CGO_ENABLED=0 GOFLAGS='' HOME=$folder/build
  PATH=$GOROOT/bin:$PATH
  cd "$source"
  generate
  # Bound into the programs, so that they tell their version as the released ones do. Without the
  # drivers of clouds and of Docker they take half as long to build.
  local stamp='' package
  for package in k8s.io/kubernetes/vendor/k8s.io/component-base/version \
    k8s.io/kubernetes/vendor/k8s.io/client-go/pkg/version; do
    stamp+=" -X $package.gitVersion=v1.20.2 -X $package.gitMajor=1 -X $package.gitMinor=20"
  done
  for program in "${PROGRAMS[@]}"; do
    echo "building $program"
    go build -tags providerless,dockerless -ldflags "-s -w $stamp" -o "$folder/debian/usr/bin/$program" "./cmd/$program"
  done
}

fetch
unpack
build
rm -rf "$folder/build" "$folder/apt"
touch "$ready"
echo "Kubernetes is ready in $folder"
