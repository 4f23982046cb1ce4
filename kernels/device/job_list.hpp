// Runs several jobs in one launch: each part of the work finds its job in a list in device memory.
#ifndef GRADWIRE_KERNELS_DEVICE_JOB_LIST_HPP
#define GRADWIRE_KERNELS_DEVICE_JOB_LIST_HPP

#include "kernels/device/decode.hpp"
#include "kernels/device/encode.hpp"
#include "kernels/device/reduce.hpp"

namespace gradwire::kernels {

/// Calls body(job, number of the part in it) for the parts of this block, or of this thread, of which there are `width`
/// and which begins with `first`.
template <class Job, class Body>
GRADWIRE_DEVICE void for_each_part(const JobList<Job>& list, std::uint32_t first, std::uint32_t width,
                                   const Body& body) {
  const std::uint32_t parts = list.parts_before[list.count];
  GRADWIRE_ROLLED
  for (std::uint32_t part = first; part < parts; part += width) {
    std::uint32_t low = 0;
    std::uint32_t high = list.count;
    GRADWIRE_ROLLED
    while (high - low > 1) {
      const std::uint32_t middle = (low + high) / 2;
      (list.parts_before[middle] <= part ? low : high) = middle;
    }
    body(list.jobs[low], part - list.parts_before[low]);
  }
}

/// A part is a word of a header.
template <class Job>
GRADWIRE_KERNEL open_listed(GRADWIRE_PARAMETER(JobList<Job>) list) {
  for_each_part(list, simt::block() * simt::kThreads + simt::thread(), simt::blocks() * simt::kThreads,
                [](const Job& job, std::uint32_t part) { open_word(job, part); });
}

/// A part is a tile, as in the three below.
template <class Codec, class Job>
GRADWIRE_KERNEL_OF(4)
encode_listed(GRADWIRE_PARAMETER(JobList<Job>) list) {
  GRADWIRE_SHARED typename Codec::Shared shared[simt::kWarps];
  for_each_part(list, simt::block(), simt::blocks(), [&](const Job& job, std::uint32_t part) {
    encode_part<Codec>(job, part, step_of(job.call), shared[simt::warp()]);
  });
}

template <class Codec, class Job>
GRADWIRE_KERNEL_OF((kDecodingBlocks<Codec, Job>))
decode_listed(GRADWIRE_PARAMETER(JobList<Job>) list) {
  for_each_part(list, simt::block(), simt::blocks(),
                [](const Job& job, std::uint32_t part) { decode_part<Codec>(job, part, step_of(job.call)); });
}

template <class Codec, class Job>
GRADWIRE_KERNEL_OF(3)
reduce_listed(GRADWIRE_PARAMETER(JobList<Job>) list) {
  GRADWIRE_SHARED typename Codec::Shared shared[simt::kWarps];
  for_each_part(list, simt::block(), simt::blocks(), [&](const Job& job, std::uint32_t part) {
    using Value = typename Codec::Value;
    const InputList inputs = input_list(job);
    const std::uint32_t step = step_of(job.call);
    const bool good = check_inputs(job, inputs, step, part == 0, nullptr);
    reduce_part<Codec>(job, inputs, part, step, good ? Value{-0.0F} : not_a_number<Value>(),
                       exact_inverse(divisor_of<Value>(job)), shared[simt::warp()]);
  });
}

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_JOB_LIST_HPP
