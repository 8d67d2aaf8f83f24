#!/bin/bash
# Several processes as ranks of one NCCL world on one GPU. NCCL does not support that; distinct NCCL_HOSTID let the
# processes pass for machines of their own, joined by sockets. Opt-in: SUMONCE_NCCL_SHARE_GPU=1.
set -u
program=$1
ranks=${2:-2}
if [ "${SUMONCE_NCCL_SHARE_GPU:-}" != 1 ]; then
  echo "SKIP: set SUMONCE_NCCL_SHARE_GPU=1 to run several ranks on one GPU"
  exit 77
fi
export WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1 MASTER_PORT=${MASTER_PORT:-29611}
export NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 NCCL_MNNVL_ENABLE=0 NCCL_NVLS_ENABLE=0 NCCL_MAX_CTAS=2
pids=()
for ((rank = 0; rank < ranks; ++rank)); do
  RANK=$rank LOCAL_RANK=$rank NCCL_HOSTID=rank$rank "$program" &
  pids+=($!)
done
worst=0
for pid in "${pids[@]}"; do
  wait "$pid"
  code=$?
  if [ $code -gt $worst ]; then worst=$code; fi
done
exit $worst
