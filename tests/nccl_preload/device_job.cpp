// A job over the fake library that shows which calls reach NCCL: device_job SCENARIO prints NCCL's calls in their
// order. Every other rank exists in name only.
#include "nccl_preload/device_job.hpp"
#include "nccl_preload/fake_events.hpp"

namespace {

using namespace gradwire::test;

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

// The step has three buckets of equal size and a smaller one, at addresses of their own.
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

// Activations come beside two buckets: one at the same address twice a step, one at a new address each time.
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

// Activations take turns at two addresses on one communicator, and buckets come on another.
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

// Prints when the first call is made both ways, and from when on all are compressed.
void chosen_by_time(double milliseconds, bool captures) {
  ncclComm_t comm = agreed();
  events.milliseconds_of_sum = milliseconds;
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

// The node's kernel has waited for a rank in vain, if the device says so.
void missing_rank() {
  ncclComm_t comm = agreed();
  show("agreed");
  std::printf("first: %d\n", reduce(comm));
  show("opened");
  ncclResult_t error = ncclSuccess;
  std::printf("asked: %d\n", ncclCommGetAsyncError(comm, &error));
  std::printf("error: %d\n", error);
  std::printf("second: %d\n", reduce(comm));
  show("reduced");
  ncclCommAbort(comm);
  show("aborted");
  comm = agreed();
  reduce(comm);
  show("another");
  ncclCommDestroy(comm);
  show("destroyed");
  std::printf("alive: %d\n", fake_nccl_alive());
}

// No call by messages or in tiers is faster than one of the library.
void tiers(bool refuses) {
  ncclComm_t comm = agreed(4);
  events.milliseconds_of_sum = 1;
  show("agreed");
  if (refuses) {  // the second communicator, without which there is none of a node
    fake_nccl_refuse_split();
  }
  reduce(comm);
  show("opened");
  for (int call = 0; call < 800; ++call) {
    reduce(comm);
  }
  std::printf("sums inside nodes: %ld\n", fake_nccl_calls("ncclReduceScatter"));
  show("tried");
  ncclCommAbort(comm);
  show("aborted");
  if (!refuses) {
    comm = agreed(4);
    reduce(comm);
    show("another");
    ncclCommDestroy(comm);
    show("destroyed");
  }
  std::printf("alive: %d\n", fake_nccl_alive());
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
  gradwire::test::Scenarios scenarios = {{"alone", alone},
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
                                         {"steps", steps},
                                         {"missing_rank", missing_rank},
                                         {"tiers", [] { tiers(false); }},
                                         {"tiers_refused", [] { tiers(true); }},
                                         {"faster", [] { chosen_by_time(5, false); }},
                                         {"faster_and_captures", [] { chosen_by_time(5, true); }},
                                         {"slower", [] { chosen_by_time(1, false); }}};
  scenarios.merge(gradwire::test::scenarios_of_order());
  scenarios.merge(gradwire::test::scenarios_of_memory());
  scenarios.at(argc > 1 ? argv[1] : "")();
}
