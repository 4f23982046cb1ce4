#include "device_support.hpp"

#include "kernels/device/operations.hpp"
#include "kernels/device/status.hpp"
#include "kernels/device/window_operations.hpp"

namespace gradwire::test {
namespace {

// Fills block `b` of 128 elements by one of ten recipes.
void make_special(std::vector<float>& values, std::size_t first, std::size_t last, unsigned recipe) {
  constexpr float kMost = std::numeric_limits<float>::max();
  for (std::size_t i = first; i < last; ++i) {
    float& x = values[i];
    switch (recipe) {
      case 1: x = 0; break;
      case 2: x = -0.0F; break;
      case 3: x = 0.37F; break;
      case 4: x *= 0x1p-140F; break;  // denormal
      case 5: x *= 0x1p-124F; break;  // about where scales become 0
      case 6: x = (i % 3 == 0 ? kMost : -kMost) * (i % 2 == 0 ? 1.0F : 0.3F); break;
      case 7: x = i == first + 77 ? -123.0F : 0.0F; break;
      case 8: x = i == first + 5 ? std::numeric_limits<float>::infinity() : x; break;
      case 9: x = i == last - 1 ? std::numeric_limits<float>::quiet_NaN() : x; break;
      default: break;
    }
  }
}

// From here on the emulator refuses to launch kernels that were not loaded before: on a device the first launch of such
// a kernel could wait forever.
[[maybe_unused]] const bool g_loaded = [] {
  kernels::load_kernels();
  kernels::load_status_kernels();
  kernels::load_window_kernels();
  return true;
}();

}  // namespace

std::vector<float> inputs(std::size_t count, unsigned seed, Kind kind) {
  std::vector<float> values = gauss(count, seed, 0.01);
  if (kind == Kind::special) {
    for (std::size_t first = 0; first < count; first += 128) {
      const auto block = static_cast<unsigned>(first / 128);
      make_special(values, first, std::min(count, first + 128), (block * 3 + seed) % 13);
    }
  }
  return values;
}

std::vector<std::byte> as_tensor(DType dtype, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * element_bytes(dtype));
  codec::TensorList list(dtype, codec::Working::f32);
  list.append(nullptr, bytes.data(), values.size());
  for_each_tile(values.size(), [&](std::size_t i, std::uint32_t n) { list.store(i, n, values.data() + i); });
  return bytes;
}

Values working_values(const codec::Codec& codec, DType dtype, const std::vector<std::byte>& tensor) {
  Values values(codec.working(), tensor.size() / element_bytes(dtype));
  codec::TensorList list(dtype, codec.working());
  list.append(tensor.data(), nullptr, values.size());
  for_each_tile(values.size(), [&](std::size_t i, std::uint32_t n) {
    const void* from = list.load(i, n, values.at(i));
    std::memmove(values.at(i), from, n * codec.working_bytes());
  });
  return values;
}

std::string difference(const std::vector<std::byte>& got, const std::vector<std::byte>& wanted) {
  if (got.size() != wanted.size()) {
    return std::to_string(got.size()) + " bytes instead of " + std::to_string(wanted.size());
  }
  const auto at = std::mismatch(got.begin(), got.end(), wanted.begin());
  if (at.first == got.end()) {
    return "";
  }
  return "byte " + std::to_string(at.first - got.begin()) + " of " + std::to_string(got.size()) + " is " +
         std::to_string(std::to_integer<int>(*at.first)) + " instead of " +
         std::to_string(std::to_integer<int>(*at.second));
}

std::string difference(DType dtype, const std::vector<std::byte>& got, const std::vector<std::byte>& wanted) {
  const std::size_t unit = element_bytes(dtype);
  std::vector<std::byte> patched = got;
  for (std::size_t i = 0; i + unit <= std::min(got.size(), wanted.size()); i += unit) {
    const auto nan = [&](const std::vector<std::byte>& bytes) {
      const codec::Codec exact({1, 0}, dtype);
      const Values value = working_values(
          exact, dtype,
          {bytes.begin() + static_cast<std::ptrdiff_t>(i), bytes.begin() + static_cast<std::ptrdiff_t>(i + unit)});
      return std::isnan(value[0]);
    };
    if (std::memcmp(&got[i], &wanted[i], unit) != 0 && nan(got) && nan(wanted)) {
      std::memcpy(&patched[i], &wanted[i], unit);
    }
  }
  return difference(patched, wanted);
}

kernels::FrameCodec frame_codec(const codec::Codec& codec) {
  return {.id = codec.spec().values, .k = codec.spec().k, .dtype = codec.dtype()};
}

Call::Call(const codec::Codec& codec) : step(info_for(0).step) {
  static unsigned calls = 0;  // a kernel that lacks a barrier may be right in one of the orders
  emulator::set_order(++calls % 2 == 0 ? emulator::Order::ascending : emulator::Order::descending);
  fields.codec = frame_codec(codec);
  fields.bucket = info_for(0).bucket;
  fields.step = &step;
  fields.status = &status;
}

kernels::FramePlace place_of(Memory& frame, std::size_t count, std::uint32_t first_tile, std::uint8_t hop, int peer) {
  return {.bytes = frame.frame(),
          .count = static_cast<std::uint32_t>(count),
          .first_tile = first_tile,
          .hop = hop,
          .peer = peer};
}

std::vector<Case> device_cases() {
  std::vector<Case> cases;
  for (const codec::CodecEntry& entry : codec::codecs()) {
    for (const DType dtype : kDTypes) {
      if (!entry.lossy || dtype == DType::f32 || dtype == DType::bf16) {
        cases.push_back({&entry, dtype});
      }
    }
  }
  for (const codec::CodecEntry& entry : codec::codecs()) {
    cases.push_back({&entry, DType::f32, 41});
    for (const std::uint16_t k : {1, 900, 1500, 4096}) {
      if (entry.name == "int2") {  // its values depend most on their number
        cases.push_back({&entry, DType::f32, k});
      }
    }
    for (const DType dtype : {DType::f16, DType::bf16, DType::f64}) {
      if (!entry.lossy) {
        cases.push_back({&entry, dtype, 41});
      }
    }
  }
  return cases;
}

}  // namespace gradwire::test
