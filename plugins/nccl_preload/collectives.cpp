// The collective and point-to-point calls that a job makes: reductions may be compressed; all others are counted and
// forwarded unchanged.
#include "plugins/nccl_preload/real.hpp"
#include "plugins/nccl_preload/reduce_calls.hpp"
#include "plugins/nccl_preload/requests.hpp"
#include "plugins/nccl_preload/state.hpp"

// Defines a function of NCCL, given its parameters as in nccl.h and the fields of a Request. gradwire/replace/nccl.h
// calls it as gradwire_X.
#define COLLECTIVE(name, parameters, arguments, ...)                                          \
  GRADWIRE_NCCL_DECLARE(ncclResult_t, name, parameters)                                       \
  extern "C" ncclResult_t name parameters {                                                   \
    gradwire::nccl_preload::observe({gradwire::choice::Function::__VA_ARGS__, comm, stream}); \
    return GRADWIRE_NCCL_REAL(name) arguments;                                                \
  }                                                                                           \
  GRADWIRE_NCCL_REPLACEMENT(name)

// The same for a function that may be compressed, perhaps only at the end of its group, so that the arguments are kept.
#define REDUCTION(name, parameters, arguments, ...)                                                        \
  GRADWIRE_NCCL_DECLARE(ncclResult_t, name, parameters)                                                    \
  extern "C" ncclResult_t name parameters {                                                                \
    const auto& real = GRADWIRE_NCCL_REAL(name);                                                           \
    const gradwire::nccl_preload::NcclCall request{gradwire::choice::Function::__VA_ARGS__, comm, stream}; \
    if (gradwire::nccl_preload::may_compress()) {                                                          \
      return gradwire::nccl_preload::reduce(request, [=, &real] { return real arguments; });               \
    }                                                                                                      \
    const auto timed = gradwire::nccl_preload::observe(request);                                           \
    return gradwire::nccl_preload::make_timed(timed, [&] { return real arguments; });                      \
  }                                                                                                        \
  GRADWIRE_NCCL_REPLACEMENT(name)

using gradwire::nccl_preload::kNoOp;

REDUCTION(ncclAllReduce,
          (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
           cudaStream_t stream),
          (sendbuff, recvbuff, count, datatype, op, comm, stream),  //
          nccl_all_reduce, sendbuff, recvbuff, count, datatype, op)
REDUCTION(ncclReduceScatter,
          (const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype, ncclRedOp_t op,
           ncclComm_t comm, cudaStream_t stream),
          (sendbuff, recvbuff, recvcount, datatype, op, comm, stream),  //
          nccl_reduce_scatter, sendbuff, recvbuff, recvcount, datatype, op)
COLLECTIVE(ncclReduce,
           (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, int root,
            ncclComm_t comm, cudaStream_t stream),
           (sendbuff, recvbuff, count, datatype, op, root, comm, stream),  //
           nccl_reduce, sendbuff, recvbuff, count, datatype, op)
COLLECTIVE(ncclAllGather,
           (const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype, ncclComm_t comm,
            cudaStream_t stream),
           (sendbuff, recvbuff, sendcount, datatype, comm, stream),  //
           nccl_all_gather, sendbuff, recvbuff, sendcount, datatype, kNoOp)
COLLECTIVE(ncclBroadcast,
           (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
            cudaStream_t stream),
           (sendbuff, recvbuff, count, datatype, root, comm, stream),  //
           nccl_broadcast, sendbuff, recvbuff, count, datatype, kNoOp)
COLLECTIVE(ncclBcast,
           (void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream),
           (buff, count, datatype, root, comm, stream),  //
           nccl_broadcast, buff, buff, count, datatype, kNoOp)
COLLECTIVE(ncclAlltoAll,
           (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
            cudaStream_t stream),
           (sendbuff, recvbuff, count, datatype, comm, stream),  //
           nccl_all_to_all, sendbuff, recvbuff, count, datatype, kNoOp)
COLLECTIVE(ncclGather,
           (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
            cudaStream_t stream),
           (sendbuff, recvbuff, count, datatype, root, comm, stream),  //
           nccl_gather, sendbuff, recvbuff, count, datatype, kNoOp)
COLLECTIVE(ncclScatter,
           (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
            cudaStream_t stream),
           (sendbuff, recvbuff, count, datatype, root, comm, stream),  //
           nccl_scatter, sendbuff, recvbuff, count, datatype, kNoOp)
COLLECTIVE(ncclSend,
           (const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
            cudaStream_t stream),
           (sendbuff, count, datatype, peer, comm, stream),  //
           nccl_send, sendbuff, const_cast<void*>(sendbuff), count, datatype, kNoOp)
COLLECTIVE(ncclRecv,
           (void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm, cudaStream_t stream),
           (recvbuff, count, datatype, peer, comm, stream),  //
           nccl_recv, recvbuff, recvbuff, count, datatype, kNoOp)
