#!/usr/bin/env bash
# What tests/gpu/check and collective share: they source it after they set here, out, budget and program.
# Where a script sets one_log, all logs are in that file.
# shellcheck disable=SC2034,SC2154 # variables are shared with those scripts

say() { printf '==> [%3d s] %s\n' "$SECONDS" "$*"; }

# find_gpu names the GPU, or ends the script with 77 where there is none. Without nvidia-smi a container may still have
# the devices, which the programs find out. With it but without a GPU, it says so on standard output, where names would
# be.
find_gpu() {
  gpu=$(timeout -k 2 20 nvidia-smi --query-gpu=name,driver_version,compute_cap,memory.total --format=csv,noheader 2>/dev/null) || gpu=''
  gpu=${gpu%%$'\n'*}
  if [ -z "$gpu" ] && ! compgen -G '/dev/nvidia[0-9]*' >/dev/null; then
    echo "tests/gpu/check: there is no GPU here (nvidia-smi names none, no /dev/nvidia0): nothing was checked"
    exit 77
  fi
}

# open_rows makes the files of the table, in which a row stands as soon as it is known.
open_rows() {
  mkdir -p "$out/logs"
  out=$(realpath "$out")
  machine=$out/machine.tsv rows=$out/rows.tsv
  : >"$machine" && : >"$rows"
}
fact() { printf '%s\t%s\n' "$1" "$2" | tee -a "$machine"; }
# row STEP NAME VALUE UNIT AIM VERDICT NOTE adds a row.
row() { (IFS=$'\t' && printf '%s\n' "$*") >>"$rows"; }

# step NAME LIMIT LEAST COMMAND... runs the command within LIMIT seconds, or the remaining time if that is at least
# LEAST. The program's rows follow the step's own. `status` is its exit status.
status=0
step() {
  local name=$1 limit=$2 least=$3 left=$((budget - SECONDS)) log=$out/logs/$1.log begun=$SECONDS verdict=ok note='' where=logs/$1.log
  [ -z "${one_log-}" ] || where=${one_log##*/}
  shift 3
  status=0
  if [ "$left" -lt "$least" ]; then
    case $name in kernels | ranks) verdict=failed ;; *) verdict=skipped ;; esac # without these nothing was checked
    say "$name: $verdict, $left s are left"
    row "$name" "$name" '' '' '' $verdict "no time left"
    return 1
  fi
  [ "$limit" -lt "$left" ] || limit=$left
  say "$name (at most $limit s): ${*##*/}"
  rm -f "$out/step.tsv"
  timeout -k 10 "$limit" "$@" >"$log" 2>&1 || status=$?
  case $status in
    0) ;;
    77) verdict=skipped note=$(tail -n 1 "$log") ;;
    124 | 137) verdict=failed note="out of time after $limit s" ;;
    *) verdict=failed note="exit status $status, see $where" ;;
  esac
  row "$name" "$name" "$((SECONDS - begun))" s '' "$verdict" "$(tr '\t' ' ' <<<"$note")"
  [ ! -s "$out/step.tsv" ] || sed "s/^/$name\t/" "$out/step.tsv" >>"$rows"
  rm -f "$out/step.tsv"
  if [ "$verdict" = failed ]; then
    say "$name FAILED: $note"
    grep -m 12 -E 'FAILED|[Ee]rror|ERROR' "$log" || tail -n 12 "$log"
  fi
  [ -z "${one_log-}" ] || { echo "==> $name" && cat "$log" && rm "$log"; } >>"$one_log"
  [ "$status" = 0 ]
}
# without STEP WHY adds a row for a step that cannot be made here.
without() {
  say "$1: skipped: $2"
  row "$1" "$1" '' '' '' skipped "$2"
}

# report_all prints the table and writes the JSON; its status is that of the script.
report_all() {
  fact seconds "$SECONDS"
  local ended=0
  "$here/report" "$machine" "$rows" "$out/check.json" | tee "$out/check.txt" || ended=1
  local logs=${one_log:-logs/}
  echo "tests/gpu/check: $out/check.txt, check.json, ${logs#"$out/"}"
  return $ended
}
