// Tests the backend over CUDA and NCCL without a GPU: errors name what is missing or wrong.
#include <gtest/gtest.h>

#include <memory>

#include "exchange/stream/stream_nccl.hpp"
#include "tests/support/error_of.hpp"

namespace gradwire::test {
namespace {

using exchange::CudaDevice;
using transport::NcclMessages;

// The messages of a world of one rank, which sends nothing.
class NoMessages final : public transport::DeviceMessages {
 public:
  [[nodiscard]] std::string name() const override { return "none"; }
  [[nodiscard]] int rank() const noexcept override { return 0; }
  [[nodiscard]] int world_size() const noexcept override { return 1; }
  void begin_group() override {}
  void send(std::span<const std::byte> /*bytes*/, int /*peer*/, void* /*stream*/) override {}
  void receive(std::span<std::byte> /*bytes*/, int /*peer*/, void* /*stream*/) override {}
  void all_reduce(void* /*values*/, DType /*dtype*/, std::uint64_t /*count*/, void* /*stream*/) override {}
  void end_group() override {}
  void poll() override {}
  void abort(const Error& /*error*/) noexcept override {}
};

bool has_gpu() {
  int count = 0;
  const bool any = cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
  cudaGetLastError();
  return any;
}

TEST(StreamCuda, AMissingDriverOrGpuIsNamed) {
  if (has_gpu()) {
    GTEST_SKIP() << "there is a GPU";
  }
  for (const Error& error : {error_of([] { (void)exchange::cuda_devices(); }),
                             error_of([] { CudaDevice device(std::make_unique<NoMessages>(), 0, nullptr); })}) {
    const std::string text = error.what();
    EXPECT_EQ(error.code(), ErrorCode::unsupported) << text;
    EXPECT_TRUE(text.find("cudaErrorInsufficientDriver, 35") != std::string::npos ||
                text.find("cudaErrorNoDevice, 100") != std::string::npos)
        << text;
    EXPECT_NE(text.find("is there a GPU, and a driver"), std::string::npos) << text;
  }
}

TEST(StreamCuda, ADeviceThatIsNotThereIsNamed) {
  if (!has_gpu()) {
    GTEST_SKIP() << "needs a GPU";
  }
  for (const int device : {-1, 1000}) {
    const Error error = error_of([device] { CudaDevice made(std::make_unique<NoMessages>(), device, nullptr); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("device " + std::to_string(device)), std::string::npos) << error.what();
  }
}

TEST(StreamCuda, MemoryOfTheHostIsNotTheDevices) {
  if (!has_gpu()) {
    GTEST_SKIP() << "needs a GPU";
  }
  CudaDevice device(std::make_unique<NoMessages>(), 0, nullptr);
  const float here = 0;
  const Error error = error_of([&] { device.check(&here, "the gradient of \"w\""); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_NE(std::string(error.what()).find("the gradient of \"w\" is in host memory"), std::string::npos)
      << error.what();
}

TEST(StreamCuda, ADeviceOverNcclNamesWhatIsMissing) {
  const Error error = error_of([] { (void)exchange::make_nccl_device(nullptr, nullptr); });
  EXPECT_EQ(error.code(), has_gpu() ? ErrorCode::invalid_argument : ErrorCode::unsupported) << error.what();
}

TEST(StreamCuda, ANullCommunicatorIsNamed) {
  for (const Error& error :
       {error_of([] { (void)NcclMessages::over(nullptr); }), error_of([] { (void)NcclMessages::adopt(nullptr); })}) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("communicator is null"), std::string::npos) << error.what();
  }
}

TEST(StreamCuda, NcclErrorsCarryNcclsText) {
  transport::nccl_check(ncclSuccess, nullptr, "nothing");
  const Error usage = error_of([] { transport::nccl_check(ncclInvalidUsage, nullptr, "sending"); });
  EXPECT_EQ(usage.code(), ErrorCode::invalid_argument);
  EXPECT_TRUE(std::string(usage.what()).starts_with("sending: ")) << usage.what();
  EXPECT_NE(std::string(usage.what()).find("(ncclInvalidUsage, 5)"), std::string::npos) << usage.what();
  EXPECT_NE(std::string(usage.what()).find(ncclGetErrorString(ncclInvalidUsage)), std::string::npos);
  const Error remote = error_of([] { transport::nccl_check(ncclRemoteError, nullptr, "sending"); });
  EXPECT_EQ(remote.code(), ErrorCode::transport);
  EXPECT_NE(std::string(remote.what()).find("(ncclRemoteError, 6)"), std::string::npos) << remote.what();
}

}  // namespace
}  // namespace gradwire::test
