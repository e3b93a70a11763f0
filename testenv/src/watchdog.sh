# Ends the processes of an owner that is gone. Standard input is a pipe whose
# only writer is the owner: end of input means that the owner ended, however it
# did. Lines: "add PID", "del PID" (each PID leads a process group), "dir PATH".
pids=" "
dir=
while read -r word value; do
  case $word in
    add) pids="$pids$value " ;;
    del)
      case $pids in
        *" $value "*) pids="${pids%% "$value" *} ${pids#* "$value" }" ;;
      esac
      ;;
    dir) dir=$value ;;
  esac
done
for pid in $pids; do
  kill -9 "-$pid" 2>/dev/null
done
if [ -n "$dir" ]; then
  # A process killed a moment ago may still create a last file.
  for _ in 1 2 3 4 5; do
    rm -rf "$dir" 2>/dev/null && break
    sleep 1
  done
fi
exit 0
