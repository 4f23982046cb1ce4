// A call as its caller wrote it, and what becomes of it.
#pragma once

#include <nccl.h>

#include <cstdint>
#include <optional>

#include "choice/decision.hpp"
#include "drop_in/ledger.hpp"
#include "plugins/nccl_preload/communicators.hpp"
#include "plugins/nccl_preload/timing.hpp"

namespace gradwire::nccl_preload {

constexpr int kNoOp = -1;

struct Request {
  choice::Function function;
  const void* sendbuff;
  void* recvbuff;  // only read where the function has no other
  std::size_t count;
  ncclDataType_t datatype;
  int op;  // ncclRedOp_t, or kNoOp where the function takes none
  ncclComm_t comm;
  cudaStream_t stream;
};

/// What is known of a request, but for what only the ranks together know.
struct Described {
  std::optional<Communicator> comm;
  choice::Call call;
  drop_in::CallClass what;  // but for the reason
  std::uint64_t bytes = 0;  // of the larger buffer
};
[[nodiscard]] Described describe(const Request& request);

/// The driver's own answer, from whichever libcuda the process has loaded. What cannot be asked counts as not captured.
[[nodiscard]] bool is_captured(cudaStream_t stream) noexcept;

/// Counts a call that is handed on: at once, or at the end of its group.
void count(const Described& described, choice::Reason reason);
void count(const drop_in::CallClass& what, const drop_in::CallTotals& totals);

/// Counts what is always handed on. Returns what is to be timed.
std::optional<TimedCall> observe(const Request& request) noexcept;

/// Where the process observes: the call, to be timed now, unless it is in a group, which may be timed at its end.
[[nodiscard]] std::optional<TimedCall> to_be_timed(const drop_in::CallClass& what, std::uint64_t bytes,
                                                   cudaStream_t stream);

}  // namespace gradwire::nccl_preload
