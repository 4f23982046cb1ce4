#include "tests/support/host_kernels.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "gradwire/error.hpp"
#include "tests/support/simulated_codecs.hpp"
#include "tests/support/single_frames.hpp"

namespace gradwire::test {

void HostKernels::open_headers(std::span<const kernels::HeaderJob> jobs) {
  std::vector<Access> accesses;
  for (const kernels::HeaderJob& job : jobs) {
    const std::vector<Access> more = accesses_of(job);
    accesses.insert(accesses.end(), more.begin(), more.end());
  }
  compute("open_headers", accesses,
          [all = std::vector<kernels::HeaderJob>(jobs.begin(), jobs.end())] { run_open_headers(all); });
}

void HostKernels::encode(const kernels::EncodeJob& job) {
  std::vector<Access> accesses = accesses_of(job);
  for (const kernels::EncodeJob& one : single_frames(job)) {
    add_pieces(one.pieces, one.frame.count, one.values_dtype, false, accesses);
  }
  compute("encode", accesses, [job] { run_encode(job); });
}

void HostKernels::decode(const kernels::DecodeJob& job) {
  std::vector<Access> accesses = accesses_of(job);
  for (const kernels::DecodeJob& one : single_frames(job)) {
    add_pieces(one.pieces, one.frame.count, one.values_dtype, true, accesses);
  }
  compute("decode", accesses, [job] { run_decode(job); });
}

void HostKernels::all_reduce_windows(const kernels::WindowJob& /*job*/) {
  throw Error(ErrorCode::internal, "a simulated device has no windows");
}

void HostKernels::reduce(const kernels::ReduceJob& job) {
  std::vector<Access> accesses = accesses_of(job);
  add_pieces(job.own_pieces, job.count, job.own_dtype, false, accesses);
  add_pieces(job.result_pieces, job.count, job.result_dtype, true, accesses);
  compute("reduce", accesses, [job] { run_reduce(job); });
}

void HostKernels::fold(float* residual, double factor, const double* device_factor, void* values, DType dtype,
                       std::uint64_t count) {
  compute("fold",
          {{residual, count * sizeof(float), true},
           {device_factor, sizeof(double), false},
           {values, count * element_bytes(dtype), true}},
          [=] { run_fold(residual, device_factor == nullptr ? factor : *device_factor, values, dtype, count); });
}

void HostKernels::convert(const void* from, DType from_dtype, void* to, DType to_dtype, std::uint64_t count,
                          double factor, const double* device_factor, double divisor, const double* device_divisor) {
  compute("convert",
          {{from, count * element_bytes(from_dtype), false},
           {device_factor, sizeof(double), false},
           {device_divisor, sizeof(double), false},
           {to, count * element_bytes(to_dtype), true}},
          [=] {
            run_convert(from, from_dtype, to, to_dtype, count, device_factor == nullptr ? factor : *device_factor,
                        device_divisor == nullptr ? divisor : *device_divisor);
          });
}

void HostKernels::measure_scale(const float* scale, std::uint64_t count, std::uint8_t* powers) {
  compute("measure_scale", {{scale, count * sizeof(float), false}, {powers, count, true}},
          [=] { run_measure_scale(scale, count, powers); });
}

void HostKernels::rescale(const kernels::RescaleJob& job) {
  compute("rescale", accesses_of(job), [job] { run_rescale(job); });
}

void HostKernels::hash(const void* elements, std::uint64_t count, std::uint32_t* sums) {
  compute("hash", {{elements, count * sizeof(std::uint32_t), false}, {sums, 2 * sizeof(std::uint32_t), true}},
          [=] { run_hash(elements, count, sums); });
}

void HostKernels::gather(std::span<const kernels::CopyPiece> pieces, DType tensors, void* run, DType run_dtype) {
  compute("gather", accesses_of(pieces, tensors, run, run_dtype, true),
          [=, copies = std::vector<kernels::CopyPiece>(pieces.begin(), pieces.end())] {
            for (const kernels::CopyPiece& piece : copies) {
              std::byte* to = static_cast<std::byte*>(run) + piece.offset * element_bytes(run_dtype);
              if (piece.tensor == nullptr) {
                std::memset(to, 0, piece.count * element_bytes(run_dtype));
              } else {
                run_convert(piece.tensor, tensors, to, run_dtype, piece.count, 1, 1);
              }
            }
          });
}

void HostKernels::scatter(std::span<const kernels::CopyPiece> pieces, DType tensors, const void* run, DType run_dtype) {
  compute("scatter", accesses_of(pieces, tensors, run, run_dtype, false),
          [=, copies = std::vector<kernels::CopyPiece>(pieces.begin(), pieces.end())] {
            for (const kernels::CopyPiece& piece : copies) {
              if (piece.tensor != nullptr) {
                run_convert(static_cast<const std::byte*>(run) + piece.offset * element_bytes(run_dtype), run_dtype,
                            piece.tensor, tensors, piece.count, 1, 1);
              }
            }
          });
}

void HostKernels::write(std::span<const std::uint64_t> words, std::uint64_t* to) {
  const std::vector<std::uint64_t> all(words.begin(), words.end());
  std::vector<kernels::Piece> pieces(all.size() / 2);
  std::memcpy(static_cast<void*>(pieces.data()), all.data(), pieces.size() * sizeof(kernels::Piece));
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].begin == 0) {  // two tables may lie one behind the other
      tables_[to + 2 * i] = {pieces.begin() + static_cast<std::ptrdiff_t>(i), pieces.end()};
    }
  }
  compute("write", {{to, words.size_bytes(), true}}, [to, all] { std::copy(all.begin(), all.end(), to); });
}

void HostKernels::add_pieces(const kernels::PieceTable& table, std::uint64_t count, DType dtype, bool writes,
                             std::vector<Access>& accesses) const {
  if (table.count == 0) {
    return;
  }
  accesses.push_back({table.pieces, (table.count + 1) * sizeof(kernels::Piece), false});
  const std::vector<kernels::Piece>& pieces = tables_.at(table.pieces);
  const std::size_t element = element_bytes(dtype);
  for (std::uint32_t i = 0; i < table.count; ++i) {
    const std::uint64_t begin = std::max(pieces.at(i).begin, table.first);
    const std::uint64_t end = std::min(pieces.at(i + 1).begin, table.first + count);
    if (pieces.at(i).tensor != nullptr && begin < end) {
      accesses.push_back(
          {pieces.at(i).tensor + (begin - pieces.at(i).begin) * element, (end - begin) * element, writes});
    }
  }
}

void HostKernels::copy(void* to, const void* from, std::size_t bytes) {
  compute("copy", {{from, bytes, false}, {to, bytes, true}}, [=] { std::memmove(to, from, bytes); });
}

void HostKernels::sum_weights(std::span<const double* const> weights, double own, double* totals) {
  std::vector<Access> accesses{{totals, 3 * sizeof(double), true}};
  for (const double* weight : weights) {
    accesses.push_back({weight, sizeof(double), false});
  }
  compute("sum_weights", accesses, [=, all = std::vector<const double*>(weights.begin(), weights.end())] {
    double sum = 0;
    bool valid = true;
    for (const double* weight : all) {
      valid = valid && *weight >= 0 && std::isfinite(*weight);
      sum += *weight;
    }
    valid = valid && sum > 0 && std::isfinite(sum);
    const double nan = std::numeric_limits<double>::quiet_NaN();
    totals[0] = valid ? sum : nan;
    totals[1] = valid ? 1 / sum : nan;
    totals[2] = valid ? own / sum : nan;
  });
}

void HostKernels::store_weight(double weight, double* to) {
  compute("store_weight", {{to, sizeof(double), true}}, [=] { *to = weight; });
}

}  // namespace gradwire::test
