// Sessions over gradients in the memory of a GPU, over any transport. Needs the component `cuda`: target
// gradwire::cuda. For NCCL see gradwire/nccl.hpp.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "gradwire/policy.hpp"
#include "gradwire/processes.hpp"
#include "gradwire/session.hpp"
#include "gradwire/transport.hpp"

namespace gradwire::cuda {

/// A session whose gradients are memory of the current device, reduced over `transport`. Codecs run on the device, and
/// a thread of the session sends only compressed bytes, while the device works on. It sends from device memory where
/// the transport supports that (a CUDA-aware MPI); otherwise, or with GRADWIRE_STAGED=1, it sends through pinned host
/// memory. With MPI:
///     cuda::make_session(mpi::make_transport(MPI_COMM_WORLD), stream, policy)
/// `stream` is the one with the caller's work (null: the default stream); it stays the caller's and must outlive the
/// session. Every rank makes this call. The rest is as over NCCL (docs/how-to/gpu.md), but steps cannot be captured.
/// Each rank must be a process of its own: ranks that are threads of one process would wait for each other for ever,
/// since CUDA allocates pinned memory only once no stream of the process waits.
/// `options.threading` is ignored: any thread may call, one at a time communicates.
/// Error(unsupported) without GPU or driver, with CUDA's text, and for a transport that only the thread that made it
/// may use (MPI below MPI_THREAD_MULTIPLE). Error(invalid_argument) for a null transport, and from CUDA 12.8 on for a
/// stream of another device.
/// Error(unsupported) also for what no session over device memory can do, here measure_error and checksum = true, in
/// later calls sync modes other than `step`, tables, checkpoint(), restore() and link(); and for a step that is being
/// captured. The first step is Error(invalid_argument) under codec = "auto" and [batch], which choose by measurement.
/// docs/reference/support.md lists what works where.
[[nodiscard]] Session make_session(std::shared_ptr<Transport> transport, cudaStream_t stream, Policy policy,
                                   SessionOptions options = {});

/// The same over Processes: when some of them end, the others go on (docs/explanation/elastic.md). With MPI:
///     cuda::make_session(mpi::make_processes(MPI_COMM_WORLD), stream, policy)
/// finish(), broadcast() and share() wait for the device: when they return this rank holds its results, so that a step
/// counts on all ranks or on none. Bytes go through pinned host memory, also where a transport takes device memory. The
/// parameters for share() are in device memory. Work that the caller enqueues on `stream` must not wait for another
/// rank. A new world has a pool of device memory of its own, made before the old one is freed.
/// Error(unsupported) as above. Error(invalid_argument) as above, and where another session has used `processes`.
[[nodiscard]] Session make_session(std::shared_ptr<Processes> processes, cudaStream_t stream, Policy policy,
                                   SessionOptions options = {});

}  // namespace gradwire::cuda
