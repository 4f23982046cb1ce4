// Every codec core instantiated as device code, one thread a tile.
#include "kernels/bf16.hpp"
#include "kernels/exact.hpp"
#include "kernels/fp16.hpp"
#include "kernels/fp8.hpp"
#include "kernels/int2.hpp"
#include "kernels/int4.hpp"
#include "kernels/int8.hpp"
#include "kernels/sign.hpp"
#include "kernels/topk.hpp"

namespace gradwire::kernels {

struct DeviceBuffers {
  std::uint8_t* payload;
  float* residual;  // or null
  bool* nonfinite;  // one for each tile
  std::uint32_t count;
};

template <class Core>
__global__ void round_trip(typename Core::Value* values, DeviceBuffers buffers, Tile first) {
  const std::uint32_t index = blockIdx.x * blockDim.x + threadIdx.x;
  const std::uint32_t begin = index * kTileElements;
  if (begin >= buffers.count) {
    return;
  }
  const std::uint32_t left = buffers.count - begin;
  const std::uint32_t count = left < kTileElements ? left : kTileElements;
  Tile tile = first;
  tile.index += index;
  std::uint8_t* payload = buffers.payload + std::size_t{index} * Core::tile_bytes(tile.k, kTileElements);
  float* residual = buffers.residual == nullptr ? nullptr : buffers.residual + begin;
  buffers.nonfinite[index] = Core::encode(tile, values + begin, residual, count, payload);
  Core::decode(tile, payload, count, values + begin);
  Core::decode_add(tile, payload, count, values + begin);
}

template __global__ void round_trip<Exact<DType::f32>>(float*, DeviceBuffers, Tile);
template __global__ void round_trip<Exact<DType::f16>>(float*, DeviceBuffers, Tile);
template __global__ void round_trip<Exact<DType::bf16>>(float*, DeviceBuffers, Tile);
template __global__ void round_trip<Exact<DType::f64>>(double*, DeviceBuffers, Tile);
template __global__ void round_trip<Bf16>(float*, DeviceBuffers, Tile);
template __global__ void round_trip<Fp16>(float*, DeviceBuffers, Tile);
template __global__ void round_trip<Int8>(float*, DeviceBuffers, Tile);
template __global__ void round_trip<Fp8>(float*, DeviceBuffers, Tile);
template __global__ void round_trip<Int4>(float*, DeviceBuffers, Tile);
template __global__ void round_trip<Int2>(float*, DeviceBuffers, Tile);
template __global__ void round_trip<Sign>(float*, DeviceBuffers, Tile);
template __global__ void round_trip<TopK<Exact<DType::f32>::Kept>>(float*, DeviceBuffers, Tile);
template __global__ void round_trip<TopK<Exact<DType::f64>::Kept>>(double*, DeviceBuffers, Tile);
template __global__ void round_trip<TopK<Bf16::Kept>>(float*, DeviceBuffers, Tile);
template __global__ void round_trip<TopK<Fp16::Kept>>(float*, DeviceBuffers, Tile);
template __global__ void round_trip<TopK<Int8::Kept>>(float*, DeviceBuffers, Tile);
template __global__ void round_trip<TopK<Fp8::Kept>>(float*, DeviceBuffers, Tile);
template __global__ void round_trip<TopK<Int4::Kept>>(float*, DeviceBuffers, Tile);
template __global__ void round_trip<TopK<Int2::Kept>>(float*, DeviceBuffers, Tile);
template __global__ void round_trip<TopK<Sign::Kept>>(float*, DeviceBuffers, Tile);

}  // namespace gradwire::kernels
