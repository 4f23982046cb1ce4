// Sessions over gradients in the memory of a GPU, whatever moves the bytes. Needs the component `cuda`: target
// gradwire::cuda. For NCCL see gradwire/nccl.hpp.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "gradwire/policy.hpp"
#include "gradwire/session.hpp"
#include "gradwire/transport.hpp"

namespace gradwire::cuda {

/// A session whose gradients are memory of the current device, reduced over `transport`: codecs run on the device, and
/// a thread of the session sends only compressed bytes, while the device works on: from device memory where the
/// transport supports it (a CUDA-aware MPI), else, or with GRADWIRE_STAGED=1, through pinned host memory. With MPI:
///     cuda::make_session(mpi::make_transport(MPI_COMM_WORLD), stream, policy)
/// `stream` is the one that the caller's work is on (null: the default stream); it stays the caller's and must outlive
/// the session. Every rank calls it. The rest is as over NCCL (docs/gpu.md), but steps cannot be captured.
/// A rank is a process: ranks that are threads of one would wait for each other for ever, since CUDA allocates pinned
/// memory only once no stream of the process waits.
/// `options.threading` is ignored: any thread may call, one at a time communicates.
/// Error(unsupported) without GPU or driver, with CUDA's text, and for a transport that only the thread that made it
/// may use (MPI below MPI_THREAD_MULTIPLE). Error(invalid_argument) for a stream of another device or a null transport.
[[nodiscard]] Session make_session(std::shared_ptr<Transport> transport, cudaStream_t stream, Policy policy,
                                   SessionOptions options = {});

}  // namespace gradwire::cuda
