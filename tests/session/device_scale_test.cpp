// Tests sessions over device memory that encode gradients by their scales: what ranks compare, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device_model.hpp"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The ranks differ after the first step, the second, or 64 later. Mutation tried: the hashes of all tensors are added
// to that of the first.
TEST(DeviceScale, ADifferenceOfRanksIsNamed) {
  for (const std::uint64_t at : {0, 1, 65}) {
    const auto errors = run_ranks_catching(make_inproc_world(3), [&](const std::shared_ptr<Transport>& transport) {
      auto device = std::make_shared<HostDevice>(transport);
      std::vector<float> w(5000, 1.0F), b(300, 2.0F), w_scale(5000, 2.0F), b_scale(300, 1.0F);
      Session session = session::make_session(
          std::make_unique<session::DeviceRunner>(device, nullptr, SessionOptions{}), uniform("int8"), {});
      const TensorId first = session.add("w", view(w.data(), w.size()), {.scale = w_scale});
      const TensorId second = session.add("b", view(b.data(), b.size()), {.scale = b_scale});
      EXPECT_THAT(session.explain(), HasSubstr("by scale"));
      for (std::uint64_t step = 0; step <= at; ++step) {
        device->call("an optimiser", {{b_scale.data(), b_scale.size() * sizeof(float), true}},
                     [&, step] { b_scale[299] = step == at && transport->rank() == 2 ? 1.0001F : 1.0F; });
        session.ready(first);
        session.ready(second);
        session.finish();
        EXPECT_LT(step, at) << "no error";
      }
    });
    for (const auto& error : errors) {
      ASSERT_TRUE(error);
      const Error told = error_of([&] { std::rethrow_exception(error); });
      EXPECT_THAT(told.what(),
                  AllOf(HasSubstr("the scale of \"b\" in step " + std::to_string(at)), HasSubstr("on rank(s) 2")));
    }
  }
}

TEST(DeviceScale, LiesInTheMemoryOfTheDevice) {
  auto world = make_inproc_world(1);
  auto device = std::make_shared<HostDevice>(world[0]);
  std::vector<float> w(500), scale(500, 1.0F);
  device->foreign.insert(scale.data());
  Session session = session::make_session(std::make_unique<session::DeviceRunner>(device, nullptr, SessionOptions{}),
                                          uniform("int8"), {});
  const Error error = error_of([&] { session.add("w", view(w.data(), w.size()), {.scale = scale}); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.what(), HasSubstr("the scale of \"w\" is host memory"));
  device->foreign.clear();
  session.add("w", view(w.data(), w.size()), {.scale = scale});
}

}  // namespace
}  // namespace gradwire::test
