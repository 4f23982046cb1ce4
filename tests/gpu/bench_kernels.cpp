// gpu_bench_kernels measures the bytes that each kernel must move per second, beside a device-to-device copy measured
// in turn with it. Working values are read and written once each, residuals read and written, frames read or written
// once.
#include <algorithm>
#include <memory>

#include "kernels/device/operations.hpp"
#include "tests/gpu/device_cuda.hpp"
#include "tests/gpu/kernel_jobs.hpp"

namespace gradwire::gpu {
namespace {

constexpr int kRanks = 4;

struct Aims {
  double encode, decode, reduce;  // share of the copy's bandwidth; 0: not measured
};

struct Row {
  const char* codec;
  Aims aims;
};

constexpr Row kRows[] = {
    {"int8", {0.85, 0.85, 0.80}}, {"bf16", {0.85, 0.85, 0.80}},          {"fp16", {0.85, 0.85, 0.80}},
    {"fp8", {0.85, 0.85, 0.80}},  {"sign", {0.85, 0.85, 0.80}},          {"int4", {0.70, 0.70, 0.70}},
    {"int2", {0.70, 0.70, 0.70}}, {"topk(1%)+int8", {0.50, 0.00, 0.00}}, {"exact", {0.00, 0.00, 0.00}},
};

float median(std::vector<float> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

class Bench {
 public:
  Bench(Check& check, std::uint32_t count)
      : check_(check), count_(count), values_(bytes()), residual_(bytes()), other_(bytes()) {
    const Bytes block = tensor(DType::f32, 1 << 22, check.seed());
    for (std::size_t at = 0; at < bytes(); at += block.size()) {
      const std::size_t part = std::min(block.size(), bytes() - at);
      upload(values_.get() + at, block.data(), part);
      upload(residual_.get() + at, block.data(), part);
    }
  }

  void run(const Row& row) {
    const Case c{CodecSpec::parse(row.codec), DType::f32};
    const std::size_t frame_bytes = c.codec().frame_bytes(count_);
    const DeviceCall call(c.frame_codec());
    const std::size_t pitch = (frame_bytes + 255) / 256 * 256;
    const Block frames((kRanks - 1) * pitch);  // of all ranks but 0
    kernels::EncodeJob encode{
        .call = call.fields(), .frame = {.bytes = nullptr, .count = count_}, .values = values_.get()};
    for (std::size_t rank = 1; rank < kRanks; ++rank) {
      encode.frame.bytes = frames.frame() + (rank - 1) * pitch;
      kernels::encode(encode, stream_.get());
    }
    measure("encode " + c.spec.to_string(), bytes() + frame_bytes, 0, [&] { kernels::encode(encode, stream_.get()); });
    encode.residual = reinterpret_cast<float*>(residual_.get());
    measure("encode with residual " + c.spec.to_string(), 3 * bytes() + frame_bytes, row.aims.encode,
            [&] { kernels::encode(encode, stream_.get()); });
    const kernels::DecodeJob decode{.call = call.fields(), .frame = encode.frame, .values = other_.get()};
    measure("decode " + c.spec.to_string(), bytes() + frame_bytes, row.aims.decode,
            [&] { kernels::decode(decode, stream_.get()); });
    const Block out(frame_bytes);
    kernels::ReduceJob reduce;
    reduce.call = call.fields();
    reduce.second = c.frame_codec();
    reduce.count = count_;
    reduce.frames = frames.frame();
    reduce.pitch = static_cast<std::uint32_t>(pitch);
    reduce.ranks = kRanks;
    reduce.own_rank = 0;
    reduce.own = values_.get();
    reduce.divisor = kRanks;
    reduce.out = out.frame();
    measure("reduce of 4 ranks " + c.spec.to_string(), bytes() + kRanks * frame_bytes, row.aims.reduce,
            [&] { kernels::reduce(reduce, stream_.get()); });
    check_.that(call.status().bad_frames == 0, std::string(row.codec) + ": frames of the benchmark were bad");
  }

 private:
  // Device memory without guards, since Memory, which has them, keeps a copy on the host.
  struct Block {
    explicit Block(std::size_t bytes) : memory(static_cast<std::byte*>(device_allocate(bytes))) {}
    ~Block() { device_free(memory); }
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    [[nodiscard]] std::byte* get() const { return memory; }
    [[nodiscard]] std::uint8_t* frame() const { return reinterpret_cast<std::uint8_t*>(memory); }
    std::byte* memory;
  };

  [[nodiscard]] std::size_t bytes() const { return std::size_t{count_} * sizeof(float); }

  template <class Body>
  void measure(const std::string& name, std::size_t moved, double aim, Body&& body) {
    const auto stream = static_cast<cudaStream_t>(stream_.get());
    std::vector<float> kernel_ms;
    std::vector<float> copy_ms;
    for (int round = 0; round < kRounds + 1; ++round) {
      const float copied = watch_.time(stream, [&] {
        cuda(cudaMemcpyAsync(other_.get(), values_.get(), bytes(), cudaMemcpyDeviceToDevice, stream),
             "cudaMemcpyAsync");
      });
      const float ran = watch_.time(stream, body);
      if (round != 0) {  // the first round loads the code
        copy_ms.push_back(copied);
        kernel_ms.push_back(ran);
      }
    }
    const double rate = static_cast<double>(moved) / median(kernel_ms) / 1e6;
    const double copy_rate = 2.0 * static_cast<double>(bytes()) / median(copy_ms) / 1e6;
    char value[32];
    char wanted[32];
    char note[160];
    std::snprintf(value, sizeof value, "%.3f", rate / copy_rate);
    std::snprintf(wanted, sizeof wanted, ">= %.2f", aim);
    std::snprintf(note, sizeof note, "%.0f GB/s, copy %.0f GB/s; %.3f ms for %.2f bytes an element", rate, copy_rate,
                  static_cast<double>(median(kernel_ms)), static_cast<double>(moved) / count_);
    check_.row(name, value, "of a copy", aim == 0 ? "" : wanted,
               aim == 0                  ? "info"
               : rate / copy_rate >= aim ? "ok"
                                         : "short",
               note);
  }

  static constexpr int kRounds = 11;
  Check& check_;
  std::uint32_t count_;
  Stream stream_;
  Stopwatch watch_;
  Block values_;
  Block residual_;
  Block other_;
};

}  // namespace
}  // namespace gradwire::gpu

int main(int argc, char** argv) {
  using namespace gradwire::gpu;
  Check check("gpu_bench_kernels", argc, argv);
  if (const std::string missing = why_no_device(); !missing.empty()) {
    return check.skip(missing);
  }
  try {
    Bench bench(check, check.small() ? 1U << 22 : 1U << 26);  // 256 MiB of f32
    for (const Row& row : kRows) {
      if (!check.fits(3)) {
        check.row(std::string("kernels of ") + row.codec, "", "", "", "skipped", "no time left");
        continue;
      }
      bench.run(row);
    }
  } catch (const std::exception& error) {
    check.fail(error.what());
  }
  return check.finish();
}
