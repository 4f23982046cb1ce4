// A call of the job with its arguments, and functions that describe, count and time it.
#pragma once

#include <nccl.h>

#include <cstdint>
#include <optional>

#include "choice/decision.hpp"
#include "drop_in/ledger.hpp"
#include "plugins/nccl_preload/known_communicators.hpp"
#include "plugins/nccl_preload/timing.hpp"

namespace gradwire::nccl_preload {

constexpr int kNoOp = -1;

struct NcclCall {
  choice::Function function;
  const void* sendbuff;
  void* recvbuff;  // only read if the function has no other buffer
  std::size_t count;
  ncclDataType_t datatype;
  int op;  // ncclRedOp_t, or kNoOp if the function takes none
  ncclComm_t comm;
  cudaStream_t stream;
};

/// What this rank alone knows about a request.
struct Described {
  std::optional<KnownCommunicator> comm;
  choice::Call call;
  drop_in::CallClass what;  // without the reason
  std::uint64_t bytes = 0;  // of the larger buffer
  Factor factor = {};
  bool scaled = false;  // the operation has factors
};
[[nodiscard]] Described describe(const NcclCall& request);

/// Whether the stream is being captured, by the libcuda that the process has loaded. False if it cannot be asked.
[[nodiscard]] bool is_captured(cudaStream_t stream) noexcept;

/// Counts a call that is forwarded: at once, or at the end of its group.
void count(const Described& described, choice::Reason reason);
void count(const drop_in::CallClass& what, const drop_in::CallTotals& totals);

/// Counts a call that is always forwarded. Returns it if it is to be timed.
std::optional<TimedCall> observe(const NcclCall& request) noexcept;

/// In an observing process, returns the call, to be timed now, unless it is in a group, which may be timed at its end.
[[nodiscard]] std::optional<TimedCall> to_be_timed(const drop_in::CallClass& what, std::uint64_t bytes,
                                                   cudaStream_t stream);

}  // namespace gradwire::nccl_preload
