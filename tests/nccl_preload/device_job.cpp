// A job over the fake library that shows which calls reach NCCL: device_job SCENARIO prints NCCL's calls in their
// order. Every other rank exists in name only.
#include <cuda.h>
#include <nccl.h>

#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "nccl_preload/fake_nccl.hpp"

extern "C" CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  *status =
      stream == reinterpret_cast<CUstream>(0x70) ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

// The events of the fake driver: each record is a millisecond later than the previous one, and none is ready the first
// time that it is asked for.
#undef cuEventElapsedTime
#undef cuEventDestroy
struct CUevent_st {
  int at = 0;
  bool asked = false;
};
namespace {
struct Events {
  int made = 0;
  int recorded = 0;
  int captured = 0;
  int destroyed = 0;
};
Events events;
// If set, NCCL's all-reduces take so long, and each group of messages one; the device is never behind its host.
double milliseconds_of_sum = 0;
}  // namespace
extern "C" {
CUresult cuEventCreate(CUevent* event, unsigned int /*flags*/) {
  *event = new CUevent_st;
  ++events.made;
  return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  event->at = ++events.recorded;
  if (milliseconds_of_sum > 0) {
    event->at = static_cast<int>(milliseconds_of_sum * static_cast<double>(fake_nccl_calls("ncclAllReduce"))) +
                static_cast<int>(fake_nccl_calls("ncclGroupEnd"));
  }
  events.captured += stream == reinterpret_cast<CUstream>(0x70) ? 1 : 0;
  return CUDA_SUCCESS;
}
CUresult cuEventQuery(CUevent event) {
  return std::exchange(event->asked, true) || milliseconds_of_sum > 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end) {
  *milliseconds = static_cast<float>(end->at - begin->at);
  return CUDA_SUCCESS;
}
CUresult cuEventDestroy_v2(CUevent event) {
  delete event;
  ++events.destroyed;
  return CUDA_SUCCESS;
}
}

namespace {

constexpr std::size_t kLarge = 1 << 15;
float buffer[4];  // no data is moved

ncclComm_t init(int ranks = 2) {
  ncclComm_t comm = nullptr;
  ncclCommInitRank(&comm, ranks, {}, 0);
  return comm;
}

ncclResult_t reduce(ncclComm_t comm, std::size_t count = kLarge, ncclRedOp_t op = ncclSum,
                    cudaStream_t stream = nullptr) {
  return ncclAllReduce(buffer, buffer, count, ncclFloat32, op, comm, stream);
}

// Prints the calls that reached NCCL since the last time.
void show(const char* what) {
  std::printf("%s: ", what);
  fake_nccl_print_order();
}

// Makes a communicator whose ranks have agreed.
ncclComm_t agreed(int ranks = 2) {
  ncclComm_t comm = init(ranks);
  reduce(comm, 1);
  return comm;
}

void alone() {
  ncclComm_t comm = init();
  show("made");
  std::printf("%d ", reduce(comm, 10));
  show("agreement");
  std::printf("%d ", reduce(comm));
  show("compressed");
  std::printf("%d ", reduce(comm, 11));
  show("small");
  std::printf("%d ", reduce(comm, kLarge + 2, ncclSum, reinterpret_cast<cudaStream_t>(0x70)));
  show("captured");
  std::printf("%d ", reduce(comm, kLarge + 3, ncclMax));
  show("maximum");
  std::printf("%d ", ncclReduceScatter(buffer, buffer, kLarge, ncclBfloat16, ncclAvg, comm, nullptr));
  show("scattered");
  std::printf("%d ", ncclAllGather(buffer, buffer, kLarge, ncclFloat32, comm, nullptr));
  show("gathered");
}

void captured_first() {
  ncclComm_t comm = init();
  show("made");
  reduce(comm, kLarge, ncclSum, reinterpret_cast<cudaStream_t>(0x70));
  show("captured");
  reduce(comm);
  show("agreement");
}

void first_group() {
  ncclComm_t a = init();
  ncclComm_t b = init();
  show("made");
  ncclGroupStart();
  reduce(a);
  reduce(b, 5);
  ncclGroupEnd();
  show("first");
  ncclGroupStart();
  reduce(a);
  ncclGroupEnd();
  show("second");
}

void first_alone_and_in_a_group() {
  ncclComm_t a = init();
  ncclComm_t b = init();
  show("made");
  reduce(a);
  show("alone");
  ncclGroupStart();
  reduce(b);
  ncclGroupEnd();
  show("in a group");
}

void mixed_group() {
  ncclComm_t comm = agreed();
  ncclRedOp_t scaled{};
  show("agreed");
  ncclGroupStart();
  reduce(comm);
  ncclSend(buffer, 7, ncclFloat32, 1, comm, nullptr);
  ncclGroupStart();
  ncclBcast(buffer, kLarge, ncclFloat32, 0, comm, nullptr);
  reduce(comm, 20);
  ncclGroupEnd();
  ncclRedOpCreatePreMulSum(&scaled, buffer, ncclFloat32, ncclScalarHostImmediate, comm);
  reduce(comm, kLarge + 9, scaled);
  ncclRedOpDestroy(scaled, comm);
  show("inside");
  std::printf("%d ", ncclGroupEnd());
  show("at its end");
}

void simulated() {
  ncclComm_t comm = agreed();
  show("agreed");
  ncclGroupStart();
  reduce(comm);
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  ncclGroupSimulateEnd(&info);
  show("simulated");
  reduce(comm);
  show("after");
}

void exact_in_a_group() {  // the policy makes the calls exact
  ncclComm_t comm = agreed();
  show("agreed");
  ncclGroupStart();
  reduce(comm, kLarge);
  reduce(comm, 2 * kLarge);
  reduce(comm, kLarge + 1);
  ncclGroupEnd();
  show("group");
}

void endings() {
  ncclComm_t comm = agreed();
  show("agreed");
  ncclGroupStart();
  reduce(comm);
  ncclCommAbort(comm);
  ncclGroupEnd();
  show("aborted inside");
  ncclComm_t again = init();
  std::printf("%d ", static_cast<int>(again == comm));
  reduce(again);
  show("same address");
  fake_nccl_refuse_end();
  std::printf("%d ", ncclCommDestroy(again));
  show("refused");
  reduce(again);
  show("still there");
  ncclCommFinalize(again);
  show("finalized");
  ncclCommDestroy(again);
  show("destroyed");
  ncclComm_t parent = agreed();
  show("parent");
  ncclComm_t child = nullptr;
  ncclCommSplit(parent, 0, 0, &child, nullptr);
  reduce(child, 3);
  show("child");
  std::printf("alive: %d\n", fake_nccl_alive());
}

void refusing_device() {
  ncclComm_t comm = init(13);
  show("made");
  std::printf("%d ", reduce(comm));
  show("refused");
  std::printf("%d ", reduce(comm));
  show("again");
}

void without_kernels() {
  ncclComm_t comm = agreed(12);
  show("agreed");
  std::printf("%d ", reduce(comm));
  show("passed");
}

void ended_in_a_group() {  // the group's calls keep the reducer
  ncclComm_t comm = agreed();
  ncclGroupStart();
  reduce(comm);
  ncclCommFinalize(comm);
  ncclGroupEnd();
  show("done");
}

void failed_send() {
  ncclComm_t comm = agreed();
  show("made");
  fake_nccl_refuse_send();
  std::printf("%d ", reduce(comm));
  show("failed");
  std::printf("groups: %ld started %ld ended\n", fake_nccl_calls("ncclGroupStart"), fake_nccl_calls("ncclGroupEnd"));
}

void observed() {
  ncclComm_t comm = agreed();
  for (int call = 0; call < 3; ++call) {
    reduce(comm);
  }
  ncclGroupStart();
  reduce(comm, 2 * kLarge);
  ncclGroupEnd();
  ncclGroupStart();
  reduce(comm, 3 * kLarge);
  reduce(comm, 4 * kLarge);
  ncclGroupEnd();
  reduce(comm, kLarge, ncclSum, reinterpret_cast<cudaStream_t>(0x70));
  for (int other = 0; other < 8; ++other) {  // each end collects the events that are ready
    ncclComm_t next = init();
    ncclCommDestroy(next);
  }
  show("calls");
  std::printf("events: %d made %d recorded %d captured %d destroyed\n", events.made, events.recorded, events.captured,
              events.destroyed);
}

// Three buckets of equal size and a smaller one, at addresses of their own.
void data_parallel() {
  ncclComm_t comm = agreed();
  show("agreed");
  for (int step = 0; step < 40; ++step) {
    for (float& bucket : buffer) {
      const std::size_t count = &bucket == buffer ? kLarge / 2 : kLarge;
      ncclAllReduce(&bucket, &bucket, count, ncclFloat32, ncclSum, comm, nullptr);
    }
  }
  show("steps");
}

// Activations beside two buckets: one at the same address twice a step, one at a new address each time.
void tensor_parallel() {
  static float fresh[256];
  ncclComm_t comm = agreed();
  show("agreed");
  for (int step = 0; step < 60; ++step) {
    ncclAllReduce(buffer, buffer, kLarge + 1, ncclFloat32, ncclSum, comm, nullptr);
    ncclAllReduce(fresh + step, fresh + step, kLarge + 2, ncclFloat32, ncclSum, comm, nullptr);
    ncclAllReduce(buffer, buffer, kLarge + 1, ncclFloat32, ncclSum, comm, nullptr);
    ncclAllReduce(buffer + 2, buffer + 2, kLarge, ncclFloat32, ncclSum, comm, nullptr);
    ncclAllReduce(buffer + 3, buffer + 3, kLarge, ncclFloat32, ncclSum, comm, nullptr);
    reduce(comm, 1);  // the loss
  }
  show("steps");
}

// Activations that take turns at two addresses on one communicator, and buckets on another.
void two_parallelisms() {
  ncclComm_t tensor = agreed();
  ncclComm_t data = agreed();
  show("agreed");
  for (int step = 0; step < 60; ++step) {
    for (int layer = 0; layer < 24; ++layer) {
      for (float* activation : {buffer, buffer + 1}) {
        ncclAllReduce(activation, activation, kLarge, ncclFloat32, ncclSum, tensor, nullptr);
      }
    }
    ncclAllReduce(buffer + 2, buffer + 2, kLarge + 1, ncclFloat32, ncclSum, data, nullptr);
    ncclAllReduce(buffer + 3, buffer + 3, kLarge + 2, ncclFloat32, ncclSum, data, nullptr);
  }
  show("steps");
}

void scatters() {
  ncclComm_t comm = agreed();
  show("agreed");
  const auto scatter = [=](ncclDataType_t type, ncclRedOp_t op) {
    return ncclReduceScatter(buffer, buffer, kLarge, type, op, comm, nullptr);
  };
  scatter(ncclFloat32, ncclSum);
  show("f32");
  scatter(ncclBfloat16, ncclSum);
  show("bf16");
  float half = 0.5F;
  ncclRedOp_t scaled{};
  ncclRedOpCreatePreMulSum(&scaled, &half, ncclFloat32, ncclScalarHostImmediate, comm);
  scatter(ncclFloat32, scaled);
  ncclRedOpDestroy(scaled, comm);
  show("factor of the host");
  ncclRedOpCreatePreMulSum(&scaled, &half, ncclFloat32, ncclScalarDevice, comm);
  scatter(ncclFloat32, scaled);
  ncclRedOpDestroy(scaled, comm);
  show("factor of the device");
}

cudaStream_t stream(std::uintptr_t number) { return reinterpret_cast<cudaStream_t>(number); }

// As FSDP's backward pass: the gradients of one layer on a stream, and the parameters of the next one on another.
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

// Calls on three streams, one of them captured, that nothing orders but the drop-in.
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

void scaled_in_a_group() {
  ncclComm_t comm = agreed();
  float half = 0.5F;
  ncclRedOp_t scaled{};
  show("agreed");
  ncclGroupStart();
  ncclRedOpCreatePreMulSum(&scaled, &half, ncclFloat32, ncclScalarHostImmediate, comm);
  reduce(comm, kLarge, scaled);
  ncclRedOpDestroy(scaled, comm);
  ncclGroupEnd();
  show("group");
}

void named() {
  for (const char* name : {"dp0", "tp0"}) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.commName = name;
    ncclComm_t comm = nullptr;
    ncclCommInitRankConfig(&comm, 2, {}, 0, &config);
    reduce(comm, 1);
    show("agreed");
    reduce(comm);
    show(name);
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

// Prints when the first call is made both ways, and from when on all are compressed.
void chosen_by_time(double milliseconds, bool captures) {
  ncclComm_t comm = agreed();
  milliseconds_of_sum = milliseconds;
  int first_trial = 0;
  int trials = 0;
  int compressed = 0;
  int passed_last = 0;
  for (int call = 1; call <= 800; ++call) {
    if (captures && call % 5 == 0) {
      reduce(comm, kLarge, ncclSum, reinterpret_cast<cudaStream_t>(0x70));
    }
    const long sums = fake_nccl_calls("ncclAllReduce");
    const long sends = fake_nccl_calls("ncclSend");
    reduce(comm);
    const bool exchange = call % 64 == 0;
    const long made = fake_nccl_calls("ncclAllReduce") - sums - (exchange ? 1 : 0);
    const bool ours = fake_nccl_calls("ncclSend") > sends;
    if (ours && made == 2) {  // a message before it, and the sum
      first_trial = first_trial == 0 ? call : first_trial;
      ++trials;
    } else if (ours && made == 0) {
      ++compressed;
    } else {
      passed_last = call;
    }
  }
  std::printf("first trial: %d\ntrials: %d\ncompressed: %d\nlast that passed: %d\n", first_trial, trials, compressed,
              passed_last);
  std::printf("events: %d captured, %s\n", events.captured, events.made - events.destroyed < 80 ? "few" : "many");
}

void steps() {
  ncclComm_t comm = init();
  for (int step = 0; step < 20; ++step) {
    reduce(comm, 1);  // the loss
    reduce(comm, kLarge);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, std::function<void()>> scenarios = {
      {"alone", alone},
      {"captured_first", captured_first},
      {"first_group", first_group},
      {"first_alone_and_in_a_group", first_alone_and_in_a_group},
      {"mixed_group", mixed_group},
      {"simulated", simulated},
      {"exact_in_a_group", exact_in_a_group},
      {"endings", endings},
      {"refusing_device", refusing_device},
      {"without_kernels", without_kernels},
      {"ended_in_a_group", ended_in_a_group},
      {"failed_send", failed_send},
      {"observed", observed},
      {"data_parallel", data_parallel},
      {"tensor_parallel", tensor_parallel},
      {"two_parallelisms", two_parallelisms},
      {"scatters", scatters},
      {"scaled_in_a_group", scaled_in_a_group},
      {"named", named},
      {"prefetch", [] { prefetch(false); }},
      {"prefetch_refused", [] { prefetch(true); }},
      {"end_pairs", end_pairs},
      {"sharing", sharing},
      {"eager_and_captured_in_a_group", eager_and_captured_in_a_group},
      {"captured_between", captured_between},
      {"captured_after_eager", captured_after_eager},
      {"steps", steps},
      {"faster", [] { chosen_by_time(5, false); }},
      {"faster_and_captures", [] { chosen_by_time(5, true); }},
      {"slower", [] { chosen_by_time(1, false); }}};
  scenarios.at(argc > 1 ? argv[1] : "")();
}
