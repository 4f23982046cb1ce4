// Tests that functions for host memory refuse device memory with an Error before using it. The driver is a fake.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/communicator.hpp"
#include "gradwire/session.hpp"

extern "C" void* fake_device_memory(std::size_t bytes);  // it faults when touched

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

template <class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(DevicePointer, IsRefusedByASessionOverHostMemory) {
  auto world = make_inproc_world(1);
  std::vector<float> host(1024);
  Session session(world[0], Policy::uniform("int8"));
  const View device = view(static_cast<float*>(fake_device_memory(4096)), 1024);
  EXPECT_THAT(message_of([&] { session.add("weight", device); }),
              HasSubstr("add: \"weight\" is in the memory of a GPU"));
  EXPECT_THAT(message_of([&] { session.broadcast(device); }), HasSubstr("gradwire/nccl.hpp"));
  const std::span<const float> scale(static_cast<const float*>(device.data), 1024);
  EXPECT_THAT(message_of([&] { session.add("scaled", view(host.data(), host.size()), {.scale = scale}); }),
              HasSubstr("add: the scale of \"scaled\" is in the memory of a GPU"));
  const TensorId id = session.add("bias", view(host.data(), host.size()));
  EXPECT_THAT(message_of([&] { session.ready(id, device); }), HasSubstr("ready: \"bias\""));
  session.ready(id);
  session.finish();
  Communicator communicator(make_inproc_world(1)[0]);
  EXPECT_THAT(message_of([&] { communicator.all_reduce(device); }), HasSubstr("memory of a GPU"));
}

}  // namespace
}  // namespace gradwire::test
