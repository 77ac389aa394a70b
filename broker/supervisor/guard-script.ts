/**
 * What a guard runs (D37). It reads from its stdin, whose other end only the broker holds: first the token and the
 * grace in milliseconds, then `group <pid> <start time>` once the worker lives, `done` once it is gone. An end of file
 * means that the broker died, however it died. The worker then has the grace to find the next broker, which sets a guard
 * of its own and ends this one; after it, or as soon as the worker has ended, everything of that worker is killed. The
 * token comes by stdin, so no argument list shows it.
 *
 * It looks until it has found nothing three times: a process caught between fork and exec shows itself only after it.
 * `ours`: a group's number may be somebody else's once all of it has ended, so its leader's start time is compared (B88).
 * dash takes a negative number only as `kill -s KILL -- -N`; `kill -9 -- -N` is refused there.
 * What has left the session and cleared its environment too is not found here; a living supervisor has seen it before.
 */
const linuxScript = `
trap '' HUP INT TERM
IFS= read -r token && IFS= read -r grace || exit 0
group= start=
while read -r word one two; do
  case $word in
    group) group=$one start=$two ;;
    done) exit 0 ;;
  esac
done

ours() {
  [ -n "$group" ] || return 1
  line=$(cat "/proc/$group/stat" 2>/dev/null) || return 0
  set -- \${line##*) }
  [ "\${20}" = "$start" ]
}

leads() {
  [ -n "$group" ] || return 1
  { IFS= read -r line < "/proc/$group/stat"; } 2>/dev/null || return 1
  set -- \${line##*) }
  [ "$1" != Z ] && [ "\${20}" = "$start" ]
}

by_session() {
  for folder in /proc/[0-9]*; do
    { IFS= read -r line < "$folder/stat"; } 2>/dev/null || continue
    set -- \${line##*) }
    [ "$4" = "$group" ] && [ "$1" != Z ] && kill -s KILL "\${folder#/proc/}" 2>/dev/null && found=1
  done
}

by_token() {
  for file in $(printf 'LEASEHOLD_TOKEN=%s\\n' "$token" | grep -lzsxF -f - /proc/[0-9]*/environ); do
    pid=\${file#/proc/}
    kill -s KILL "\${pid%/environ}" 2>/dev/null && found=1
  done
}

waited=0
while [ $waited -lt "$grace" ] && leads; do
  sleep 0.2
  waited=$((waited + 200))
done

rounds=0 quiet=0
while [ $quiet -lt 3 ] && [ $rounds -lt 100 ]; do
  found=
  if ours; then
    kill -s KILL -- "-$group" 2>/dev/null
    by_session
  fi
  by_token
  if [ -n "$found" ]; then quiet=0; else quiet=$((quiet + 1)); fi
  rounds=$((rounds + 1))
  sleep 0.05
done
`;

/** Without /proc the worker's group is all that can be found; whatever has left it lives on. */
const groupScript = `
trap '' HUP INT TERM
IFS= read -r token && IFS= read -r grace || exit 0
group=
while read -r word one two; do
  case $word in
    group) group=$one ;;
    done) exit 0 ;;
  esac
done
[ -n "$group" ] || exit 0
waited=0
while [ $waited -lt "$grace" ] && kill -s 0 "$group" 2>/dev/null; do
  sleep 0.2
  waited=$((waited + 200))
done
kill -s KILL -- "-$group" 2>/dev/null
`;

/** The script for a platform; null where there is no shell to run one. */
export function guardScript(platform: NodeJS.Platform): string | null {
  if (platform === 'linux') return linuxScript;
  return platform === 'win32' ? null : groupScript;
}
