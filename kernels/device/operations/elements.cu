// The operations on elements, weights and steps; and the loading of all kernels.
#include "kernels/device/elementwise.hpp"
#include "kernels/device/operations/dispatch.hpp"
#include "kernels/device/rescale.hpp"

namespace gradwire::kernels {
namespace {

// Calls body(Type<the type of elements on their way between two dtypes>).
template <class Body>
void with_element(DType from, DType to, Body body) {
  if (from == DType::f64 && to == DType::f64) {
    return body(Type<double>());
  }
  if (from == to && half_width(from)) {
    return body(Type<std::uint16_t>());
  }
  return body(Type<float>());
}

std::uint64_t strips_in(std::uint64_t count) { return count / kStrip + (count % kStrip != 0 ? 1 : 0); }

// For kernels that give a strip to each warp.
std::uint32_t blocks_for_strips(std::uint64_t strips, const KernelQueue& queue) {
  return blocks_for((strips + simt::kWarps - 1) / simt::kWarps, queue);
}

void copy_all(const char* name, std::span<const CopyPiece> pieces, DType tensors, void* run, DType run_dtype,
              bool gather, const KernelQueue& queue) {
  PieceList list;
  list.tensors = tensors;
  list.run_dtype = run_dtype;
  list.run = run;
  for (std::size_t done = 0; done < pieces.size();) {
    list.strips_before[0] = 0;
    for (list.count = 0; list.count < PieceList::kMost && done < pieces.size(); ++done) {
      if (pieces[done].count != 0 && (gather || pieces[done].tensor != nullptr)) {
        list.piece[list.count] = pieces[done];
        list.strips_before[list.count + 1] = list.strips_before[list.count] + strips_in(pieces[done].count);
        ++list.count;
      }
    }
    if (list.count == 0) {
      continue;
    }
    const std::uint32_t blocks = blocks_for_strips(list.strips_before[list.count], queue);
    with_element(tensors, run_dtype, [&]<class Value>(Type<Value>) {
      gather ? simt::launch(name, copy_pieces<Value, true>, blocks, queue.stream, list)
             : simt::launch(name, copy_pieces<Value, false>, blocks, queue.stream, list);
    });
  }
}

}  // namespace

void fold(float* residual, double factor, const double* device_factor, void* values, DType dtype, std::uint64_t count,
          const KernelQueue& queue) {
  if (count == 0) {
    return;
  }
  const FoldJob job{residual, {factor, device_factor}, values, dtype, count};
  const std::uint32_t blocks = blocks_for_strips(strips_in(count), queue);
  dtype == DType::f64 ? simt::launch("fold", fold_residual<double>, blocks, queue.stream, job)
                      : simt::launch("fold", fold_residual<float>, blocks, queue.stream, job);
}

void convert(const void* from, DType from_dtype, void* to, DType to_dtype, std::uint64_t count, double factor,
             const double* device_factor, double divisor, const double* device_divisor, const KernelQueue& queue) {
  if (count == 0) {
    return;
  }
  const ConvertJob job{from, from_dtype, to, to_dtype, count, {factor, device_factor}, {divisor, device_divisor}};
  const std::uint32_t blocks = blocks_for_strips(strips_in(count), queue);
  const bool wide = from_dtype == DType::f64 && to_dtype == DType::f64;
  wide ? simt::launch("convert", convert_elements<double>, blocks, queue.stream, job)
       : simt::launch("convert", convert_elements<float>, blocks, queue.stream, job);
}

void measure_scale(const float* scale, std::uint64_t count, std::uint8_t* powers, const KernelQueue& queue) {
  if (count != 0) {
    const ScaleJob job{scale, count, powers};
    simt::launch("measure_scale", measure_tiles, blocks_for(scale_tiles(count), queue), queue.stream, job);
  }
}

void rescale(const RescaleJob& job, const KernelQueue& queue) {
  if (job.count != 0) {
    simt::launch("rescale", rescale_elements, blocks_for_strips(strips_in(job.count), queue), queue.stream, job);
  }
}

void hash(const void* elements, std::uint64_t count, std::uint32_t* sums, const KernelQueue& queue) {
  if (count != 0) {
    const HashJob job{static_cast<const std::uint8_t*>(elements), count, sums};
    simt::launch("hash", hash_elements, blocks_for_strips(strips_in(count), queue), queue.stream, job);
  }
}

void gather(std::span<const CopyPiece> pieces, DType tensors, void* run, DType run_dtype, const KernelQueue& queue) {
  copy_all("gather", pieces, tensors, run, run_dtype, true, queue);
}

void scatter(std::span<const CopyPiece> pieces, DType tensors, const void* run, DType run_dtype,
             const KernelQueue& queue) {
  copy_all("scatter", pieces, tensors, const_cast<void*>(run), run_dtype, false, queue);
}

void write(std::span<const std::uint64_t> words, std::uint64_t* to, const KernelQueue& queue) {
  WordsJob job;
  for (std::size_t done = 0; done < words.size(); done += job.count) {
    job.to = to + done;
    for (job.count = 0; job.count < WordsJob::kMost && done + job.count < words.size(); ++job.count) {
      job.word[job.count] = words[done + job.count];
    }
    simt::launch("write_words", write_words, 1, queue.stream, job);
  }
}

void sum_weights(std::span<const double* const> weights, double own, double* totals, const KernelQueue& queue) {
  WeightList list;
  list.continues = false;
  std::size_t done = 0;
  do {
    for (list.count = 0; list.count < WeightList::kMost && done < weights.size(); ++done) {
      list.weight[list.count++] = weights[done];
    }
    list.ends = done == weights.size();
    simt::launch("sum_weights", add_weights, 1, queue.stream, list, own, totals);
    list.continues = true;
  } while (done < weights.size());
}

void store_weight(double weight, double* to, const KernelQueue& queue) {
  simt::launch("store_weight", store_double, 1, queue.stream, weight, to);
}

void cap_blocks(std::uint32_t most) { g_most_blocks = most == 0 ? simt::kMostBlocks : most; }

void load_kernels() {
  load_frame_kernels();
  load_sum_kernels();
  load_kernels_of_any();
  load_list_kernels();
  const auto load_copies = []<class Value>(Type<Value>) {
    simt::load_kernel("gather", copy_pieces<Value, true>);
    simt::load_kernel("scatter", copy_pieces<Value, false>);
  };
  load_copies(Type<float>());
  load_copies(Type<double>());
  load_copies(Type<std::uint16_t>());
  simt::load_kernel("write_words", write_words);
  simt::load_kernel("fold", fold_residual<float>);
  simt::load_kernel("fold", fold_residual<double>);
  simt::load_kernel("convert", convert_elements<float>);
  simt::load_kernel("convert", convert_elements<double>);
  simt::load_kernel("measure_scale", measure_tiles);
  simt::load_kernel("rescale", rescale_elements);
  simt::load_kernel("hash", hash_elements);
  simt::load_kernel("sum_weights", add_weights);
  simt::load_kernel("store_weight", store_double);
  simt::load_kernel("advance_step", advance_word);
}

void advance_step(std::uint32_t* step, const KernelQueue& queue) {
  simt::launch("advance_step", advance_word, 1, queue.stream, step);
}

}  // namespace gradwire::kernels
