# service.sh NAME start|stop|kill|status: one long-running program, identified by its recorded pid.
# /etc/lab/services/NAME is a shell script that ends in exec. Stopping ends that process alone:
# some children must outlive their parent (containers' shims).
# shellcheck shell=sh
set -eu
. /etc/lab/environment

name=$1
definition=/etc/lab/services/$name
record=/run/lab/$name.pid
log=/var/log/lab/$name.log

# The kernel can reuse a pid: the start time (field 22 of stat) identifies the process.
identity() {
  pid_asked=$1
  read -r stat 2>/dev/null <"/proc/$1/stat" || return 1
  # The name in parentheses may have spaces; field 3 comes after it.
  # shellcheck disable=SC2086
  set -- ${stat##*) }
  [ "$1" != Z ] && echo "$pid_asked ${20}"
}

running() {
  [ -r "$record" ] && read -r pid start <"$record" && [ "$(identity "$pid")" = "$pid $start" ]
}

end() {
  if running; then
    kill "-$1" "$pid" || :
    tries=0
    while running; do
      tries=$((tries + 1))
      if [ "$tries" = "$2" ]; then
        echo "$name (pid $pid) is still there after $1" >&2
        exit 1
      fi
      sleep 0.1
    done
  fi
  rm -f "$record"
}

case $2 in
  start)
    [ -r "$definition" ] || { echo "there is no service $name" >&2; exit 1; }
    if running; then
      echo "$name runs already (pid $pid)" >&2
      exit 1
    fi
    setsid sh "$definition" </dev/null >>"$log" 2>&1 &
    identity "$!" >"$record" || {
      echo "$name ended at once" >&2
      exit 1
    }
    ;;
  stop) end TERM 300 ;;
  kill) end KILL 100 ;;
  status)
    running || { echo "$name does not run" >&2; exit 3; }
    echo "$pid"
    ;;
esac
