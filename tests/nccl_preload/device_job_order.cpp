#include <utility>

#include "nccl_preload/device_job.hpp"

namespace gradwire::test {
namespace {

// Like FSDP's backward pass, it reduces the gradients of one layer on a stream and gathers the parameters of the next
// one on another.
void prefetch(bool refuse) {
  ncclComm_t comm = agreed();
  show("agreed");
  if (refuse) {
    fake_nccl_refuse_split();
  }
  for (const char* when : {"first", "second"}) {
    ncclBroadcast(buffer, buffer, kLarge, ncclFloat32, 0, comm, stream(1));
    std::printf("%d ", ncclReduceScatter(buffer, buffer, kLarge, ncclFloat32, ncclSum, comm, stream(1)));
    ncclAllGather(buffer, buffer, kLarge, ncclFloat32, comm, stream(2));
    std::printf("behind: sends %d ", fake_nccl_behind("ncclSend", "ncclBroadcast"));
    std::printf("all-gather %d ", fake_nccl_behind("ncclAllGather", "ncclSend"));
    ncclReduce(buffer, buffer, 1, ncclFloat32, ncclSum, 0, comm, stream(1));
    std::printf("reduce %d\n", fake_nccl_behind("ncclReduce", "ncclSend"));
    show(when);
  }
}

// Ends communicators whose messages have one of their own.
void end_pairs() {
  const auto used = [](const char* what) {
    ncclComm_t comm = agreed();
    reduce(comm);
    show("used");
    std::printf("alive with %s: %d\n", what, fake_nccl_alive());
    return comm;
  };
  ncclCommAbort(used("abort"));
  show("aborted");
  ncclComm_t comm = used("destroy");
  ncclCommDestroy(comm);
  show("destroyed");
  comm = used("finalize");
  ncclCommFinalize(comm);
  show("finalized");
  ncclCommDestroy(comm);
  comm = used("revoke");
  ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT);
  std::printf("%d ", reduce(comm));
  show("revoked");
  ncclCommAbort(comm);
  comm = used("shrink");
  ncclComm_t child = nullptr;
  ncclCommShrink(comm, nullptr, 0, &child, nullptr, NCCL_SHRINK_ABORT);
  show("shrunk");
  ncclCommAbort(comm);
  ncclCommAbort(child);
  comm = used("group");
  ncclGroupStart();
  ncclCommAbort(comm);
  ncclGroupEnd();
  show("in a group");
  comm = used("failure");
  fake_nccl_refuse_send();
  std::printf("%d ", reduce(comm));
  show("failed");
  ncclCommDestroy(comm);
  show("destroyed after a failure");
  std::printf("alive: %d\n", fake_nccl_alive());
}

void sharing() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.splitShare = 1;
  ncclComm_t comm = nullptr;
  ncclCommInitRankConfig(&comm, 2, {}, 0, &config);
  reduce(comm, 1);
  show("agreed");
  reduce(comm);
  show("compressed");
  ncclComm_t child = nullptr;
  ncclCommSplit(comm, 0, 0, &child, nullptr);
  reduce(child, 1);
  show("agreed");
  reduce(child);
  show("inherited");
}

void eager_and_captured_in_a_group() {
  ncclComm_t comm = agreed();
  show("agreed");
  ncclGroupStart();
  reduce(comm);
  reduce(comm, kLarge, ncclSum, stream(0x70));
  ncclGroupEnd();
  show("group");
}

// It makes calls on three streams, one of them captured, that nothing orders but the drop-in.
void captured_between() {
  ncclComm_t comm = agreed();
  for (const auto& [first, second] : {std::pair{1U, 0x70U}, {0x70U, 2U}, {2U, 0x70U}}) {
    show("order");
    reduce(comm, kLarge, ncclSum, stream(first));
    reduce(comm, kLarge, ncclSum, stream(second));
    std::printf("%u, %u: %s\n", first, second,
                fake_nccl_behind("encode", "decode") > 0 ? "one behind the other" : "at the same time");
  }
}

void captured_after_eager() {
  ncclComm_t comm = agreed();
  show("agreed");
  reduce(comm);
  show("eager");
  std::printf("%d ", reduce(comm, kLarge, ncclSum, reinterpret_cast<cudaStream_t>(0x70)));
  show("captured");
}

}  // namespace

Scenarios scenarios_of_order() {
  return {{"prefetch", [] { prefetch(false); }},
          {"prefetch_refused", [] { prefetch(true); }},
          {"end_pairs", end_pairs},
          {"sharing", sharing},
          {"eager_and_captured_in_a_group", eager_and_captured_in_a_group},
          {"captured_between", captured_between},
          {"captured_after_eager", captured_after_eager}};
}

}  // namespace gradwire::test
