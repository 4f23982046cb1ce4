// Compares all-reduces over device memory without a session with those over host memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "device_model.hpp"
#include "exchange/calls/device_communicator.hpp"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kCount = 20000;

void fill(std::vector<float>& values, int rank, std::uint64_t call) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = std::sin(0.01F * static_cast<float>(i) + static_cast<float>(call)) * static_cast<float>(1 + rank);
  }
}

std::vector<CallOptions> calls() {
  std::vector<CallOptions> all;
  for (const char* codec : {"int8", "int4", "topk(3%)+int8"}) {
    all.push_back({.codec = CodecSpec::parse(codec)});
  }
  all.push_back({.codec = CodecSpec::parse("int4"), .algorithm = Algorithm::one_shot, .reduction = Reduction::mean});
  all.push_back({.reduction = Reduction::mean, .weight = 2.5});
  return all;
}

// Mutation tried: the number of the call is not advanced.
TEST(DeviceCommunicator, HasTheBitsOfOneOverHostMemory) {
  const auto reduce = [&](bool on_device) {
    return on_ranks(3, [&](const auto& transport) {
      std::shared_ptr<HostDevice> device;
      std::unique_ptr<exchange::DeviceCommunicator> there;
      std::unique_ptr<Communicator> here;
      if (on_device) {
        device = std::make_shared<HostDevice>(transport);
        there = std::make_unique<exchange::DeviceCommunicator>(device, CommunicatorOptions{});
      } else {
        here = std::make_unique<Communicator>(transport);
      }
      std::string all;
      for (CallOptions options : calls()) {
        std::vector<float> input(kCount);
        std::vector<float> output(kCount);
        std::vector<float> seen;
        if (!on_device) {
          fill(input, transport->rank(), 0);
        }
        const ConstView from = view(static_cast<const float*>(input.data()), kCount);
        if (on_device) {
          device->call("a backward pass", {{input.data(), kCount * sizeof(float), true}},
                       [&] { fill(input, transport->rank(), 0); });
          there->all_reduce(from, view(output.data(), kCount), options);
          device->call("an optimiser", {{output.data(), kCount * sizeof(float), false}}, [&] { seen = output; });
          EXPECT_TRUE(std::all_of(output.begin(), output.end(), [](float x) { return x == 0; })) << "the call waited";
          there->wait();
          device->synchronize();
          EXPECT_EQ(seen, output);
        } else {
          if (options.algorithm == Algorithm::automatic) {
            options.algorithm = Algorithm::two_shot;  // the default on a device
          }
          here->all_reduce(from, view(output.data(), kCount), options);
        }
        all.append(reinterpret_cast<const char*>(output.data()), kCount * sizeof(float));
      }
      return all;
    });
  };
  EXPECT_TRUE(reduce(true) == reduce(false));
}

// Mutation tried: the host's default chunk means "as fits".
TEST(DeviceCommunicator, ChunksAreAsAskedAlsoAtTheHostsDefault) {
  on_ranks(2, [&](const auto& transport) -> std::string {
    const auto device = std::make_shared<HostDevice>(transport);
    exchange::DeviceCommunicator communicator(device, {});
    std::vector<float> values(1 << 20);
    const View all = view(values.data(), values.size());
    const std::uint64_t fit = communicator.all_reduce(all, all, {}).frames_sent;
    const std::uint64_t asked = communicator.all_reduce(all, all, {.chunk_bytes = kDefaultChunkBytes}).frames_sent;
    communicator.wait();
    EXPECT_GT(asked, 2 * fit);
    return {};
  });
}

TEST(DeviceCommunicator, ACapturedCallCountsAtEachReplay) {
  const auto reduce = [&](bool captures) {
    return on_ranks(2, [&](const auto& transport) {
      auto device = std::make_shared<HostDevice>(transport);
      exchange::DeviceCommunicator communicator(device, {});
      const CallOptions options{.codec = CodecSpec::parse("int4")};
      std::vector<float> values(kCount);
      const View all = view(values.data(), kCount);
      communicator.reserve(kCount, DType::f32, options);
      const std::uint64_t allocations = device->allocations;
      HostDevice::Work graph;
      if (captures) {
        device->begin_capture();
        communicator.all_reduce(all, all, options);
        graph = device->end_capture();
      }
      std::string results;
      for (std::uint64_t call = 0; call < 4; ++call) {
        fill(values, transport->rank(), call);
        if (captures) {
          device->replay(graph);
        } else {
          communicator.all_reduce(all, all, options);
        }
        communicator.wait();
        results.append(reinterpret_cast<const char*>(values.data()), kCount * sizeof(float));
      }
      EXPECT_EQ(device->allocations, allocations);
      return results;
    });
  };
  EXPECT_TRUE(reduce(true) == reduce(false));
}

TEST(DeviceCommunicator, HierarchicalIsRefused) {
  on_ranks(1, [](const auto& transport) -> std::string {
    exchange::DeviceCommunicator communicator(std::make_shared<HostDevice>(transport), {});
    std::vector<float> values(10);
    try {
      communicator.all_reduce(view(static_cast<const float*>(values.data()), 10), view(values.data(), 10),
                              {.algorithm = Algorithm::hierarchical});
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_THAT(error.what(), HasSubstr("not for device memory in this version; write two_shot"));
    }
    return {};
  });
}

TEST(DeviceCommunicator, PackedFramesAreRefused) {
  for (const CallOptions& options :
       {CallOptions{.codec = "exact+zstd"}, CallOptions{.codec = "int8", .second_hop = "exact+zstd"}}) {
    on_ranks(1, [&](const auto& transport) -> std::string {
      exchange::DeviceCommunicator communicator(std::make_shared<HostDevice>(transport), {});
      std::vector<float> values(10);
      try {
        communicator.all_reduce(view(static_cast<const float*>(values.data()), 10), view(values.data(), 10), options);
        ADD_FAILURE();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::unsupported);
        EXPECT_THAT(error.what(), HasSubstr("packs frames on the cores of hosts; over device memory write exact"));
      }
      return {};
    });
  }
}

// The device was asked to do nothing else, and a captured call must not be waited for.
TEST(DeviceCommunicator, RefusesToWaitInsideACapture) {
  run_ranks(1, [](const std::shared_ptr<Transport>& transport) {
    auto device = std::make_shared<HostDevice>(transport);
    exchange::DeviceCommunicator communicator(device, {});
    std::vector<float> values(kCount);
    const View all = view(values.data(), kCount);
    communicator.reserve(kCount, DType::f32, {});
    device->begin_capture();
    for (const char* call : {"wait", "reserve"}) {
      try {
        std::string(call) == "wait" ? communicator.wait() : communicator.reserve(kCount, DType::f32, {});
        ADD_FAILURE() << "nothing was thrown";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
        EXPECT_THAT(error.what(), HasSubstr(std::string(call) + ": not while the stream is being captured"));
      }
    }
    communicator.all_reduce(all, all, {});
    device->replay(device->end_capture());
    communicator.wait();
    EXPECT_EQ(device->waiting(), 0U);
  });
}

TEST(DeviceCommunicator, CaptureWithoutReservationIsAnError) {
  run_ranks(1, [](const std::shared_ptr<Transport>& transport) {
    auto device = std::make_shared<HostDevice>(transport, ~std::size_t{0}, 512);
    exchange::DeviceCommunicator communicator(device, {});
    std::vector<std::uint16_t> values(kCount);
    const View all = view(values.data(), kCount, DType::bf16);
    device->begin_capture();
    try {
      communicator.all_reduce(all, all, {.weight = 2});
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
      EXPECT_THAT(error.what(), HasSubstr("call reserve() on every rank before the capture"));
    }
  });
}

}  // namespace
}  // namespace gradwire::test
