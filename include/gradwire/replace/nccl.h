/* Include this instead of <nccl.h> and link libgradwire_nccl.so beside NCCL: the calls that gradwire handles or must
 * know about then reach it whatever the order of the libraries, and no preload is needed. C and C++.
 * docs/how-to/drop-in-nccl.md says what is compressed. Every name, type and error stays NCCL's. */
#ifndef GRADWIRE_REPLACE_NCCL_H_
#define GRADWIRE_REPLACE_NCCL_H_

#include <nccl.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GRADWIRE_REPLACE(function) extern __typeof__(function) gradwire_##function;
GRADWIRE_REPLACE(ncclAllReduce)
GRADWIRE_REPLACE(ncclReduceScatter)
GRADWIRE_REPLACE(ncclReduce)
GRADWIRE_REPLACE(ncclAllGather)
GRADWIRE_REPLACE(ncclBroadcast)
GRADWIRE_REPLACE(ncclBcast)
GRADWIRE_REPLACE(ncclAlltoAll)
GRADWIRE_REPLACE(ncclGather)
GRADWIRE_REPLACE(ncclScatter)
GRADWIRE_REPLACE(ncclSend)
GRADWIRE_REPLACE(ncclRecv)
GRADWIRE_REPLACE(ncclCommInitRank)
GRADWIRE_REPLACE(ncclCommInitRankConfig)
GRADWIRE_REPLACE(ncclCommInitRankScalable)
GRADWIRE_REPLACE(ncclCommInitAll)
GRADWIRE_REPLACE(ncclCommSplit)
GRADWIRE_REPLACE(ncclCommShrink)
GRADWIRE_REPLACE(ncclCommFinalize)
GRADWIRE_REPLACE(ncclCommRevoke)
GRADWIRE_REPLACE(ncclCommDestroy)
GRADWIRE_REPLACE(ncclCommAbort)
GRADWIRE_REPLACE(ncclCommGetAsyncError)
GRADWIRE_REPLACE(ncclRedOpCreatePreMulSum)
GRADWIRE_REPLACE(ncclRedOpDestroy)
GRADWIRE_REPLACE(ncclGroupStart)
GRADWIRE_REPLACE(ncclGroupEnd)
GRADWIRE_REPLACE(ncclGroupSimulateEnd)
#undef GRADWIRE_REPLACE

#ifdef __cplusplus
}
#endif

#define ncclAllReduce gradwire_ncclAllReduce
#define ncclReduceScatter gradwire_ncclReduceScatter
#define ncclReduce gradwire_ncclReduce
#define ncclAllGather gradwire_ncclAllGather
#define ncclBroadcast gradwire_ncclBroadcast
#define ncclBcast gradwire_ncclBcast
#define ncclAlltoAll gradwire_ncclAlltoAll
#define ncclGather gradwire_ncclGather
#define ncclScatter gradwire_ncclScatter
#define ncclSend gradwire_ncclSend
#define ncclRecv gradwire_ncclRecv
#define ncclCommInitRank gradwire_ncclCommInitRank
#define ncclCommInitRankConfig gradwire_ncclCommInitRankConfig
#define ncclCommInitRankScalable gradwire_ncclCommInitRankScalable
#define ncclCommInitAll gradwire_ncclCommInitAll
#define ncclCommSplit gradwire_ncclCommSplit
#define ncclCommShrink gradwire_ncclCommShrink
#define ncclCommFinalize gradwire_ncclCommFinalize
#define ncclCommRevoke gradwire_ncclCommRevoke
#define ncclCommDestroy gradwire_ncclCommDestroy
#define ncclCommAbort gradwire_ncclCommAbort
#define ncclCommGetAsyncError gradwire_ncclCommGetAsyncError
#define ncclRedOpCreatePreMulSum gradwire_ncclRedOpCreatePreMulSum
#define ncclRedOpDestroy gradwire_ncclRedOpDestroy
#define ncclGroupStart gradwire_ncclGroupStart
#define ncclGroupEnd gradwire_ncclGroupEnd
#define ncclGroupSimulateEnd gradwire_ncclGroupSimulateEnd

#endif
