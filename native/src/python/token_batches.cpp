// What batches of token ids share: their layout, and who lends them memory and threads.

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <new>
#include <utility>

#include "python/batch_loop.h"
#include "python/module.h"
#include "tokens/fill.h"

namespace fastio::python {

/// How samples become a batch: see PadCollate, PackCollate, ChunkCollate and WindowCollate.
enum class TokenLayout { pad, pack, chunk, window };

/// A field beside the ids: its name in a batch, and what its values are.
struct BesideField {
  nb::str name;
  fastio::BesideKind kind;
  std::size_t item_bytes;  ///< as stored
  nb::dlpack::dtype dtype;
  std::array<std::uint8_t, 16> fill;

  /// Bytes of a slot.
  [[nodiscard]] std::size_t slot_bytes() const {
    return kind == fastio::BesideKind::copy ? item_bytes : sizeof(std::int64_t);
  }
};

/// What is equal for all batches of a loader.
struct TokenRules {
  TokenLayout layout;
  std::int64_t width;  ///< pad: a multiple of it; pack: tokens of a batch, or 0; others: of a row
  std::int64_t rows;   ///< pack: of a batch, each of `width` tokens; 0: it has no axis of rows
  bool documents;      ///< window: positions and numbers of documents, too
  std::int64_t pad_id;
  bool at_end;  ///< padding comes first
  std::size_t item_bytes;
  std::uint64_t vocabulary;
  std::int64_t longest;  ///< tokens of a sample that are laid out, the first; 0: all
  std::vector<BesideField> beside;

  [[nodiscard]] bool has_mask() const {
    return layout == TokenLayout::pad || layout == TokenLayout::chunk;
  }
  [[nodiscard]] bool has_positions() const { return layout == TokenLayout::pack || documents; }
  [[nodiscard]] bool has_lengths() const {
    return layout == TokenLayout::pad || layout == TokenLayout::pack;
  }
  [[nodiscard]] bool has_documents() const { return rows > 0 || documents; }

  /// By how many bits the size of a sample is shifted for its count of ids. A division takes longer
  /// than the rest of what is computed for a sample.
  [[nodiscard]] int id_shift() const { return std::countr_zero(item_bytes); }

  /// Bytes for each slot of a batch, without what lies beside the ids.
  [[nodiscard]] std::int64_t own_slot_bytes() const {
    return 8 + 8 * has_positions() + 4 * has_documents() + has_mask();
  }
  /// Bytes for each slot of a batch.
  [[nodiscard]] std::int64_t slot_bytes() const {
    std::size_t bytes = 0;
    for (const BesideField& each : beside) bytes += each.slot_bytes();
    return own_slot_bytes() + static_cast<std::int64_t>(bytes);
  }

  /// Bytes for `total` slots: each array begins at a multiple of what any item takes.
  [[nodiscard]] std::size_t memory_bytes(std::size_t total) const {
    return total * static_cast<std::size_t>(slot_bytes()) + array_alignment * beside.size();
  }

  static constexpr std::size_t array_alignment = 16;
};

/// Memory of several batches: arrays of them lie one after the other.
struct TokenMemory {
  std::shared_ptr<void> owner;  ///< of what tensors share
  nb::object pinned;            ///< torch's tensor over it, where it is pinned
  std::uint8_t* data = nullptr;
};

/// Lends memory and threads to the batches of one process. Several Python threads may ask at once.
class TokenFiller {
 public:
  TokenFiller(const TokenRules& rules, nb::object pool, nb::object ring, nb::object from_dlpack,
              nb::object pinned)
      : rules(rules),
        pool(std::move(pool)),
        from_dlpack(std::move(from_dlpack)),
        ring_(std::move(ring)),
        pinned_(std::move(pinned)) {}

  /// At least `nbytes`. A ring's buffer is as large as the largest so far, so that it can be lent
  /// again.
  TokenMemory take(std::size_t nbytes) {
    std::size_t largest = largest_.load();
    while (largest < nbytes && !largest_.compare_exchange_weak(largest, nbytes)) continue;
    if (!pinned_.is_none()) return take_pinned(nbytes);
    std::shared_ptr<fastio::BufferRing::Lease> lease =
        nb::cast<fastio::BufferRing&>(ring_).acquire(largest_);
    if (!lease) throw std::bad_alloc();
    std::uint8_t* data = lease->data();
    return {std::move(lease), {}, data};
  }

  /// Memory for a few numbers of each sample, which users may keep for long.
  TokenMemory take_apart(std::size_t nbytes) {
    if (!pinned_.is_none()) return take_pinned(nbytes);
    std::shared_ptr<std::uint8_t[]> memory(new std::uint8_t[nbytes]);
    std::uint8_t* data = memory.get();
    return {std::move(memory), {}, data};
  }

  /// Counts a job and the batches that it fills.
  void count(std::size_t batches) {
    ++jobs_;
    batches_ += batches;
  }

  [[nodiscard]] std::size_t largest() const { return largest_; }
  [[nodiscard]] double job_batches() const {
    const std::size_t jobs = jobs_;
    return jobs == 0 ? 1.0 : static_cast<double>(batches_) / static_cast<double>(jobs);
  }
  [[nodiscard]] const nb::object& pinned() const { return pinned_; }

  const TokenRules rules;
  const nb::object pool;
  const nb::object from_dlpack;
  const nb::str names[8] = {nb::str("input_ids"),    nb::str("attention_mask"),
                            nb::str("position_ids"), nb::str("cu_seqlens"),
                            nb::str("lengths"),      nb::str("labels"),
                            nb::str("document_ids"), nb::str("max_seqlen")};

 private:
  TokenMemory take_pinned(std::size_t nbytes) {
    nb::object tensor = pinned_.attr("take")(nbytes);
    const auto address = nb::cast<std::uintptr_t>(tensor.attr("data_ptr")());
    return {{}, std::move(tensor), reinterpret_cast<std::uint8_t*>(address)};
  }

  const nb::object ring_;
  const nb::object pinned_;
  std::atomic<std::size_t> largest_ = 0;
  std::atomic<std::size_t> jobs_ = 0;
  std::atomic<std::size_t> batches_ = 0;
};

// Batches of token ids: laid out, filled by threads, and handed out as tensors.

namespace {

using namespace nb::literals;

using Labels = nb::ndarray<nb::c_contig, nb::device::cpu>;

/// Some batches that one job fills.
struct Filling {
  std::size_t first = 0, last = 0;      ///< batches
  std::vector<std::int64_t> starts;     ///< of the slot of each sample, and the end of the last
  std::vector<std::int64_t> cuts{0};    ///< elements of the batches
  std::vector<std::int32_t> numbers;    ///< of each sample within its batch, where there are rows
  std::vector<std::int32_t> sequences;  ///< what `ends` will hold, where there is any
  std::vector<std::size_t> sequence_cuts{0};  ///< of the batches among these
  std::vector<std::int32_t> status;           ///< of each sample
  std::string misfit;  ///< why batch `first`, then the only one, fits no layout
  TokenMemory memory;  ///< ids, positions, mask
  TokenMemory apart;   ///< lengths, labels, ends
  std::int64_t* ids = nullptr;
  std::int64_t* positions = nullptr;
  std::int64_t* lengths = nullptr;
  std::uint8_t* labels = nullptr;
  std::int32_t* documents = nullptr;
  std::vector<std::uint8_t*> beside;                    ///< where each field is
  std::vector<std::unique_ptr<Bytes[]>> beside_values;  ///< of each sample
  std::int32_t* ends =
      nullptr;  ///< for each batch where its sequences begin, and the last one ends
  std::uint8_t* mask = nullptr;
  OwnJob job;  // last: it is over before its memory goes
};

/// Samples of several pieces: sample i is the pieces `cuts[i]` up to `cuts[i + 1]`, each `sizes`
/// bytes from byte `starts` of its span on. `origins` are the positions of their first tokens: 0
/// where a document begins.
struct TokenPieces {
  Int64s cuts;
  Int64s starts;
  Int64s sizes;
  Int64s origins;
};

struct TokenRequest {
  Spans spans;  ///< of samples, or of their pieces
  std::optional<TokenPieces> pieces;
  Int64s cuts;
  Checksums checksums;
  std::vector<Spans> beside;
  std::vector<Checksums> beside_checksums;
  std::optional<Labels> labels;
  nb::object label_of;
  nb::object columns_of;
  std::optional<Int32s> unread;
  std::size_t job_bytes;
};

constexpr std::int64_t most_tokens = std::numeric_limits<std::int32_t>::max();

class TokenBatches final : public BatchGroup {
 public:
  TokenBatches(nb::object filler, TokenRequest request, nb::object proof, nb::object repair)
      : BatchGroup(request.cuts.size() - 1, std::move(proof), std::move(repair)),
        filler_object_(std::move(filler)),
        filler_(nb::cast<TokenFiller&>(filler_object_)),
        rules_(filler_.rules),
        request_(std::move(request)) {}

  ~TokenBatches() override { cancel(); }

  void begin(std::size_t k) override {
    // One job is worked on, and one waits.
    while (begun_ < size() && (fillings_.size() < 2 || fillings_.back().first <= k)) fill();
  }

  std::optional<ReadyBatch> finish(std::size_t k) override {
    pass(k);
    Filling& filling = fillings_.front();
    if (!filling.misfit.empty()) throw nb::value_error(filling.misfit.c_str());
    if (!filling.job.wait()) return {};
    if (!is_good(filling, k)) return {};
    return batch_of(filling, k);
  }

  nb::object repair(std::size_t k) override {
    Filling& filling = fillings_.front();
    nb::object status = nb::none();
    if (filling.job.wait()) status = status_of(filling, k);
    return repairer()(k, status);
  }

  void cancel() override {
    for (Filling& filling : fillings_) filling.job.cancel();
  }

  int traverse(visitproc visit, void* arg) const override {
    Py_VISIT(request_.label_of.ptr());
    Py_VISIT(request_.columns_of.ptr());
    return BatchGroup::traverse(visit, arg);
  }

  /// What finish() and repair() say, for whoever has no loop.
  nb::object status(std::size_t k) {
    const SoleUse use(used_, what);
    begin(k);
    pass(k);
    Filling& filling = fillings_.front();
    if (!filling.misfit.empty()) throw nb::value_error(filling.misfit.c_str());
    if (!filling.job.wait()) throw std::runtime_error("begun before a fork");
    return status_of(filling, k);
  }

  nb::tuple take(std::size_t k) {
    const SoleUse use(used_, what);
    begin(k);
    pass(k);
    const ReadyBatch ready = batch_of(fillings_.front(), k);
    return nb::make_tuple(ready.batch, ready.samples, ready.nbytes, ready.tokens, ready.slots);
  }

 private:
  static constexpr const char* what = "these batches";

  [[nodiscard]] std::int64_t cut(std::size_t k) const { return request_.cuts.data()[k]; }
  [[nodiscard]] std::size_t samples(std::size_t k) const {
    return static_cast<std::size_t>(cut(k + 1) - cut(k));
  }
  /// The first piece of sample i; of one without pieces, it is the only one.
  [[nodiscard]] std::int64_t piece(std::int64_t i) const {
    return request_.pieces ? request_.pieces->cuts.data()[i] : i;
  }
  [[nodiscard]] std::int64_t piece_length(std::int64_t piece) const {
    const Int64s& sizes = request_.pieces ? request_.pieces->sizes : request_.spans.sizes;
    const std::int64_t tokens = sizes.data()[piece] >> rules_.id_shift();
    return rules_.longest == 0 ? tokens : std::min(tokens, rules_.longest);
  }
  [[nodiscard]] std::int64_t length(std::int64_t i) const {
    if (!request_.pieces) return piece_length(i);
    std::int64_t total = 0;
    for (std::int64_t p = piece(i); p < piece(i + 1); ++p) total += piece_length(p);
    return total;
  }
  /// Whether a piece is followed by another document, or by another sample: `end` is its last.
  [[nodiscard]] bool ends_document(std::int64_t piece, std::int64_t end) const {
    return piece + 1 == end || request_.pieces->origins.data()[piece + 1] == 0;
  }

  /// Adds the slots of the pieces of sample i, from `slot` on; `before` of it are padding.
  void place(std::int64_t i, std::int64_t slot, std::int64_t before, Filling& filling) const {
    for (std::int64_t p = piece(i); p < piece(i + 1); ++p) {
      filling.starts.push_back(slot);
      slot += before + piece_length(p);
      before = 0;
    }
  }

  /// Adds where the documents of sample i end, the first of which begins at `at`; to `numbers` the
  /// number of each piece's, from `document` on; the number of the next.
  std::int32_t divide(std::int64_t i, std::int64_t at, std::int32_t document,
                      Filling& filling) const {
    for (std::int64_t p = piece(i); p < piece(i + 1); ++p) {
      at += piece_length(p);
      if (rules_.has_documents()) filling.numbers.push_back(document);
      if (!ends_document(p, piece(i + 1))) continue;
      filling.sequences.push_back(static_cast<std::int32_t>(at));
      ++document;
    }
    return document;
  }

  /// Lets go of the jobs before that of batch k; IndexError where it has none.
  void pass(std::size_t k) {
    while (!fillings_.empty() && fillings_.front().last <= k) {
      const Filling passed = std::move(fillings_.front());  // apart: its job is waited for
      fillings_.pop_front();
    }
    if (!fillings_.empty() && fillings_.front().first <= k) return;
    throw nb::index_error(("batch " + std::to_string(k) + " of " + std::to_string(size()) +
                           ": there is none, or a later one was asked for before")
                              .c_str());
  }

  /// Adds the slots of batch k to `filling`; false, with nothing added, where it does not fit.
  bool lay_out(std::size_t k, Filling& filling, std::string& misfit) const {
    const std::int64_t first = cut(k), last = cut(k + 1);
    std::int64_t longest = 0, total = 0;
    for (std::int64_t i = first; i < last; ++i) {
      longest = std::max(longest, length(i));
      total += length(i);
    }
    std::int64_t slot = filling.cuts.back();
    const bool is_padded =
        rules_.layout == TokenLayout::pad || rules_.layout == TokenLayout::window;
    std::int64_t row = 0, elements = total;
    if (rules_.layout == TokenLayout::window) {
      row = rules_.width;
      elements = row * (last - first);
      misfit = misfit_of_window(longest, elements);
      if (!misfit.empty()) return false;
      if (rules_.documents) divide_rows(first, last, filling);
    } else if (is_padded) {
      row = (longest + rules_.width - 1) / rules_.width * rules_.width;
      elements = row * (last - first);
    } else if (rules_.layout == TokenLayout::chunk) {
      elements = (total + rules_.width - 1) / rules_.width * rules_.width;
    } else if (rules_.rows > 0) {
      return lay_out_rows(k, total, filling, misfit);
    } else {
      if (rules_.width > 0) elements = rules_.width;
      misfit = misfit_of(total);
      if (!misfit.empty()) return false;
      filling.sequences.push_back(0);
      std::int64_t at = 0;
      for (std::int64_t i = first; i < last; ++i) {
        (void)divide(i, at, 0, filling);
        at += length(i);
      }
      filling.sequence_cuts.push_back(filling.sequences.size());
    }
    const std::int64_t end = slot + elements;
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t tokens = length(i);
      place(i, slot, is_padded && rules_.at_end ? row - tokens : 0, filling);
      slot += is_padded ? row : tokens;
    }
    filling.cuts.push_back(end);  // what the last sample leaves is its slot's, too
    return true;
  }

  /// Adds the sequences of rows that have one sample each, and what pads it.
  void divide_rows(std::int64_t first, std::int64_t last, Filling& filling) const {
    filling.sequences.push_back(0);
    std::int32_t document = 0;
    std::int64_t row_end = 0;
    for (std::int64_t i = first; i < last; ++i) {
      document = divide(i, row_end, document, filling);
      row_end += rules_.width;
      if (filling.sequences.back() < row_end) {
        filling.sequences.push_back(static_cast<std::int32_t>(row_end));
      }
    }
    filling.sequence_cuts.push_back(filling.sequences.size());
  }

  [[nodiscard]] std::string misfit_of_window(std::int64_t longest, std::int64_t elements) const {
    const std::string width = std::to_string(rules_.width);
    if (longest > rules_.width) {
      return "a sample of " + std::to_string(longest) + " tokens does not fit into tokens=" + width;
    }
    if (elements <= most_tokens) return {};
    return "a batch of " + std::to_string(elements) + " tokens: expected at most " +
           std::to_string(most_tokens);
  }

  /// The same for rows: a sample that does not fit into what its row has left begins the next one.
  bool lay_out_rows(std::size_t k, std::int64_t total, Filling& filling,
                    std::string& misfit) const {
    const std::int64_t start = filling.cuts.back(), width = rules_.width;
    const std::size_t samples_before = filling.starts.size();
    const std::size_t sequences_before = filling.sequences.size();
    std::int64_t at = 0, row_end = width;
    std::int32_t document = 0;
    filling.sequences.push_back(0);
    for (std::int64_t i = cut(k); i < cut(k + 1); ++i) {
      const std::int64_t tokens = length(i);
      if (tokens > row_end - at) {
        if (tokens > width || row_end == rules_.rows * width) {
          filling.starts.resize(samples_before);
          filling.numbers.resize(samples_before);
          filling.sequences.resize(sequences_before);
          misfit = misfit_of_rows(total);
          return false;
        }
        if (at < row_end) filling.sequences.push_back(static_cast<std::int32_t>(row_end));
        at = row_end;
        row_end += width;
      }
      place(i, start + at, 0, filling);
      document = divide(i, at, document, filling);
      at += tokens;
    }
    for (; row_end <= rules_.rows * width; row_end += width) {
      if (at < row_end) filling.sequences.push_back(static_cast<std::int32_t>(row_end));
    }
    filling.sequence_cuts.push_back(filling.sequences.size());
    filling.cuts.push_back(start + rules_.rows * width);
    return true;
  }

  [[nodiscard]] std::string misfit_of_rows(std::int64_t total) const {
    const std::string rows = std::to_string(rules_.rows), width = std::to_string(rules_.width);
    return "samples of " + std::to_string(total) + " tokens do not fit into rows=" + rows +
           " of tokens=" + width + ": plan batches with PackSampler(lengths, max_tokens=" + width +
           ", rows=" + rows + ")";
  }

  [[nodiscard]] std::string misfit_of(std::int64_t total) const {
    const std::string tokens = std::to_string(total);
    if (total > most_tokens) {
      return "a batch of " + tokens + " tokens: cu_seqlens is int32 and holds at most " +
             std::to_string(most_tokens);
    }
    const std::string width = std::to_string(rules_.width);
    if (rules_.width == 0 || total <= rules_.width) return {};
    return "a batch of " + tokens + " tokens does not fit into tokens=" + width +
           ": plan batches with PackSampler(lengths, max_tokens=" + width + ")";
  }

  /// Begins the job of the next batches.
  void fill() {
    Filling filling;
    filling.first = filling.last = begun_;
    std::string misfit;
    if (getpid() != pid_) filling.last = size();  // a forked child has them repaired, one by one
    while (filling.last < size()) {
      if (!lay_out(filling.last, filling, misfit)) break;
      ++filling.last;
      const std::int64_t next = 2 * filling.cuts.back() - *(filling.cuts.end() - 2);  // as large
      if (next * rules_.own_slot_bytes() > static_cast<std::int64_t>(request_.job_bytes)) break;
    }
    if (filling.last == filling.first) {
      filling.misfit = std::move(misfit);
      ++filling.last;
    } else if (!filling.starts.empty()) {
      filling.starts.push_back(filling.cuts.back());
      start(filling);
    }
    begun_ = filling.last;
    fillings_.push_back(std::move(filling));
  }

  /// Lends `filling` its memory, and threads work on it.
  void start(Filling& filling) {
    const auto first = static_cast<std::size_t>(piece(cut(filling.first)));
    const std::size_t count = filling.starts.size() - 1;  // of pieces
    const auto total = static_cast<std::size_t>(filling.cuts.back());
    const std::size_t batches = filling.last - filling.first;
    filler_.count(batches);
    filling.memory = filler_.take(rules_.memory_bytes(total));
    filling.ids = reinterpret_cast<std::int64_t*>(filling.memory.data);
    std::int64_t* behind = filling.ids + total;
    if (rules_.has_positions()) {
      filling.positions = behind;
      behind += total;
    }
    auto* rest = reinterpret_cast<std::int32_t*>(behind);
    if (rules_.has_documents()) {
      filling.documents = rest;
      rest += total;
    }
    auto* bytes = reinterpret_cast<std::uint8_t*>(rest);
    if (rules_.has_mask()) {
      filling.mask = bytes;
      bytes += total;
    }
    std::vector<fastio::BesideSlots> beside = begin_beside(filling, bytes, first, count);
    keep_apart(filling);
    filling.status.resize(count);
    const fastio::TokenSlots to{filling.starts.data(),
                                filling.ids,
                                filling.mask,
                                filling.positions,
                                filling.documents,
                                filling.numbers.data(),
                                request_.pieces ? request_.pieces->origins.data() + first : nullptr,
                                request_.checksums ? request_.checksums->data() + first : nullptr,
                                filling.status.data(),
                                rules_.item_bytes,
                                rules_.pad_id,
                                rules_.vocabulary,
                                rules_.at_end,
                                static_cast<std::size_t>(rules_.longest)};
    std::unique_ptr<Bytes[]> spans = resolve(request_.spans, first, count), wholes;
    if (request_.pieces) {
      wholes = std::move(spans);
      spans = parts_of(wholes.get(), first, count);
    }
    auto task =
        fastio::fill_tokens_task(std::move(spans), to, std::move(beside), std::move(wholes));
    const std::size_t grain = grain_for(8 * total / std::max<std::size_t>(count, 1));
    filling.job =
        OwnJob(submit(std::move(task), {count, grain}, nb::handle_t<PyPool>(filler_.pool.ptr())));
  }

  /// The pieces of these spans; IndexError for one that leaves its span.
  [[nodiscard]] std::unique_ptr<Bytes[]> parts_of(const Bytes* wholes, std::size_t first,
                                                  std::size_t count) const {
    auto parts = std::make_unique<Bytes[]>(count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t start = request_.pieces->starts.data()[first + i];
      const std::int64_t size = request_.pieces->sizes.data()[first + i];
      if (!fits(start, size, wholes[i].size())) {
        // What could not be read is empty, and its status is known.
        if (request_.unread && request_.unread->data()[first + i] != 0) continue;
        throw nb::index_error(("piece " + std::to_string(first + i) + " leaves its span").c_str());
      }
      parts[i] = wholes[i].subspan(static_cast<std::size_t>(start), static_cast<std::size_t>(size));
    }
    return parts;
  }

  /// Lends the fields beside the ids what is left of the memory, from `at` on.
  std::vector<fastio::BesideSlots> begin_beside(Filling& filling, std::uint8_t* at,
                                                std::size_t first, std::size_t count) const {
    constexpr std::size_t alignment = TokenRules::array_alignment;
    const auto total = static_cast<std::size_t>(filling.cuts.back());
    std::vector<fastio::BesideSlots> slots;
    for (std::size_t i = 0; i < rules_.beside.size(); ++i) {
      const BesideField& field = rules_.beside[i];
      const auto used = static_cast<std::size_t>(at - filling.memory.data);
      at = filling.memory.data + (used + alignment - 1) / alignment * alignment;
      const Checksums& checksums = request_.beside_checksums[i];
      filling.beside.push_back(at);
      filling.beside_values.push_back(resolve(request_.beside[i], first, count));
      slots.push_back({field.kind, filling.beside_values.back().get(),
                       checksums ? checksums->data() + first : nullptr, at, field.item_bytes,
                       field.fill});
      at += total * field.slot_bytes();
    }
    return slots;
  }

  /// Writes what there is for each sample.
  void keep_apart(Filling& filling) const {
    const auto first = static_cast<std::size_t>(cut(filling.first));
    const auto count = static_cast<std::size_t>(cut(filling.last)) - first;
    const std::size_t lengths = rules_.has_lengths() ? 8 * count : 0;
    const std::size_t labels = request_.labels ? (count * label_size() + 7) / 8 * 8 : 0;
    const std::size_t ends = sizeof(std::int32_t) * filling.sequences.size();
    filling.apart = filler_.take_apart(lengths + labels + ends);
    filling.lengths = reinterpret_cast<std::int64_t*>(filling.apart.data);
    filling.labels = filling.apart.data + lengths;
    filling.ends = reinterpret_cast<std::int32_t*>(filling.labels + labels);
    if (rules_.has_lengths()) {
      for (std::size_t i = 0; i < count; ++i) {
        filling.lengths[i] = length(static_cast<std::int64_t>(first + i));
      }
    }
    if (request_.labels) {
      const auto* given = static_cast<const std::uint8_t*>(request_.labels->data());
      std::memcpy(filling.labels, given + first * label_size(), count * label_size());
    }
    std::copy(filling.sequences.begin(), filling.sequences.end(), filling.ends);
  }

  /// Status of the samples of batch k.
  [[nodiscard]] nb::object status_of(const Filling& filling, std::size_t k) const {
    const std::size_t count = samples(k);
    auto status = std::make_unique<std::int32_t[]>(count);
    const std::int64_t before = piece(cut(filling.first));
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t sample = cut(k) + static_cast<std::int64_t>(i);
      for (std::int64_t p = piece(sample); p < piece(sample + 1) && status[i] == 0; ++p) {
        const std::int32_t unread = request_.unread ? request_.unread->data()[p] : 0;
        status[i] = unread != 0 ? unread : filling.status[static_cast<std::size_t>(p - before)];
      }
    }
    const nb::capsule owner(status.get(),
                            [](void* raw) noexcept { delete[] static_cast<std::int32_t*>(raw); });
    return nb::cast(
        nb::ndarray<nb::numpy, std::int32_t, nb::ndim<1>>(status.release(), {count}, owner));
  }

  [[nodiscard]] bool is_good(const Filling& filling, std::size_t k) const {
    const auto is_bad = [](std::int32_t status) { return status != 0; };
    const std::int64_t first = piece(cut(k)), count = piece(cut(k + 1)) - first;
    const auto* status = filling.status.data() + (first - piece(cut(filling.first)));
    if (std::any_of(status, status + count, is_bad)) return false;
    if (!request_.unread) return true;
    const auto* unread = request_.unread->data() + first;
    return !std::any_of(unread, unread + count, is_bad);
  }

  /// Bytes of the label of one sample.
  [[nodiscard]] std::size_t label_size() const {
    std::size_t size = request_.labels->itemsize();
    for (std::size_t i = 1; i < request_.labels->ndim(); ++i) size *= request_.labels->shape(i);
    return size;
  }

  /// A tensor over some of this memory.
  [[nodiscard]] nb::object tensor(const TokenMemory& memory, void* data, nb::dlpack::dtype dtype,
                                  std::initializer_list<std::int64_t> shape) const {
    const std::span<const std::int64_t> sizes(shape.begin(), shape.size());
    return tensor(memory, data, dtype, sizes);
  }

  [[nodiscard]] nb::object tensor(const TokenMemory& memory, void* data, nb::dlpack::dtype dtype,
                                  std::span<const std::int64_t> shape) const {
    if (!memory.pinned.is_valid()) {
      return make_tensor(filler_.from_dlpack, memory.owner, {data, dtype, shape});
    }
    nb::list sizes;
    for (const std::int64_t size : shape) sizes.append(size);
    constexpr const char* kinds = "iuf???b";  // as DLPack numbers them
    const std::string name = kinds[dtype.code] + std::to_string(dtype.bits / 8);
    return filler_.pinned().attr("view")(
        memory.pinned, static_cast<std::uint8_t*>(data) - memory.data, name, nb::tuple(sizes));
  }

  [[nodiscard]] ReadyBatch batch_of(const Filling& filling, std::size_t k) const {
    using nb::dtype;
    const std::size_t batch = k - filling.first;
    const std::int64_t start = filling.cuts[batch], slots = filling.cuts[batch + 1] - start;
    const auto count = static_cast<std::int64_t>(samples(k));
    const std::int64_t before = cut(k) - cut(filling.first);
    std::array<std::int64_t, 2> sizes{slots, 1};
    if (rules_.layout == TokenLayout::pad) sizes = {count, slots / count};
    if (rules_.layout == TokenLayout::chunk || rules_.layout == TokenLayout::window) {
      sizes = {slots / rules_.width, rules_.width};
    }
    if (rules_.rows > 0) sizes = {rules_.rows, rules_.width};
    const std::size_t dimensions = rules_.layout == TokenLayout::pack && rules_.rows == 0 ? 1 : 2;
    const std::span<const std::int64_t> shape(sizes.data(), dimensions);
    nb::dict made;
    made[filler_.names[0]] =
        tensor(filling.memory, filling.ids + start, dtype<std::int64_t>(), shape);
    if (rules_.has_mask()) {
      made[filler_.names[1]] = tensor(filling.memory, filling.mask + start, dtype<bool>(), shape);
    }
    if (rules_.has_positions()) {
      made[filler_.names[2]] =
          tensor(filling.memory, filling.positions + start, dtype<std::int64_t>(), shape);
      if (rules_.has_documents()) {
        made[filler_.names[6]] =
            tensor(filling.memory, filling.documents + start, dtype<std::int32_t>(), shape);
      }
      const std::size_t first = filling.sequence_cuts[batch];
      const std::span<const std::int32_t> ends(filling.ends + first,
                                               filling.sequence_cuts[batch + 1] - first);
      made[filler_.names[3]] = tensor(filling.apart, filling.ends + first, dtype<std::int32_t>(),
                                      {static_cast<std::int64_t>(ends.size())});
      std::int32_t longest = 0;
      for (std::size_t i = 1; i < ends.size(); ++i)
        longest = std::max(longest, ends[i] - ends[i - 1]);
      made[filler_.names[7]] = longest;
    }
    if (rules_.has_lengths()) {
      made[filler_.names[4]] =
          tensor(filling.apart, filling.lengths + before, dtype<std::int64_t>(), {count});
    }
    add_labels(filling, k, made);
    for (std::size_t i = 0; i < rules_.beside.size(); ++i) {
      const BesideField& field = rules_.beside[i];
      std::uint8_t* data = filling.beside[i] + static_cast<std::size_t>(start) * field.slot_bytes();
      made[field.name] = tensor(filling.memory, data, field.dtype, shape);
    }
    if (!request_.columns_of.is_none()) made.update(request_.columns_of(cut(k), cut(k + 1)));
    std::int64_t tokens = 0;
    for (std::int64_t i = cut(k); i < cut(k + 1); ++i) tokens += length(i);
    return {std::move(made), count, slots * rules_.slot_bytes(), tokens, slots};
  }

  void add_labels(const Filling& filling, std::size_t k, nb::dict& made) const {
    if (request_.labels) {
      std::array<std::int64_t, most_dimensions> shape{static_cast<std::int64_t>(samples(k))};
      const std::size_t dimensions = request_.labels->ndim();
      for (std::size_t i = 1; i < dimensions; ++i) {
        shape[i] = static_cast<std::int64_t>(request_.labels->shape(i));
      }
      const auto before = static_cast<std::size_t>(cut(k) - cut(filling.first));
      made[filler_.names[5]] =
          tensor(filling.apart, filling.labels + before * label_size(), request_.labels->dtype(),
                 std::span<const std::int64_t>(shape.data(), dimensions));
    } else if (!request_.label_of.is_none()) {
      made[filler_.names[5]] = request_.label_of(cut(k), cut(k + 1));
    }
  }

  const nb::object filler_object_;
  TokenFiller& filler_;
  const TokenRules& rules_;
  const TokenRequest request_;
  std::deque<Filling> fillings_;
  std::size_t begun_ = 0;  // batches
  const pid_t pid_ = getpid();
  std::atomic<bool> used_{false};
};

TokenLayout layout_of(const std::string& name) {
  if (name == "pad") return TokenLayout::pad;
  if (name == "pack") return TokenLayout::pack;
  if (name == "chunk") return TokenLayout::chunk;
  if (name == "window") return TokenLayout::window;
  throw nb::value_error(("layout is " + name + ", expected pad, pack, chunk or window").c_str());
}

using BesideRequest = std::tuple<std::string, std::string, std::string, nb::bytes>;

/// Raises ValueError for a kind, a type or a filling that there is not.
BesideField beside_of(const BesideRequest& request) {
  const auto& [name, kind, type, fill] = request;
  if (type.size() < 2) throw nb::value_error("beside: expected a type such as f4");
  const std::size_t size = std::stoul(type.substr(1));
  const std::size_t code = std::string("iuf??cb").find(type[0]);  // as DLPack numbers them
  BesideField field{nb::str(name.c_str()), fastio::BesideKind::copy, size, {}, {}};
  field.dtype = {static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(8 * size), 1};
  if (kind != "copy") {
    field.kind = kind == "loss" ? fastio::BesideKind::loss : fastio::BesideKind::widen;
    field.dtype = nb::dtype<std::int64_t>();
  }
  if (kind != "copy" && kind != "loss" && kind != "widen") {
    throw nb::value_error(("beside: kind is " + kind + ", expected copy, widen or loss").c_str());
  }
  const bool is_known = code != std::string::npos && type[0] != '?' && size >= 1 && size <= 16;
  if (!is_known || (kind == "widen" && size != 2 && size != 4)) {
    throw nb::value_error(("beside: type is " + type + ", expected one such as f4").c_str());
  }
  if (fill.size() != field.slot_bytes()) {
    throw nb::value_error("beside: expected a fill as long as a slot");
  }
  std::memcpy(field.fill.data(), fill.c_str(), fill.size());
  return field;
}

void make_filler(TokenFiller* self, const std::string& layout, std::int64_t width,
                 std::int64_t rows, std::int64_t pad_id, bool at_end, std::size_t item_bytes,
                 std::uint64_t vocabulary, const std::vector<BesideRequest>& beside,
                 nb::object pool, nb::object ring, nb::object from_dlpack, nb::object pinned,
                 bool documents, std::int64_t longest) {
  TokenRules rules{layout_of(layout), width,      rows,    documents, pad_id, at_end,
                   item_bytes,        vocabulary, longest, {}};
  if (longest < 0) throw nb::value_error("longest < 0");
  for (const BesideRequest& each : beside) rules.beside.push_back(beside_of(each));
  if (!is_id_size(item_bytes)) throw nb::value_error("item_bytes is none of 1, 2, 4, 8");
  if (documents && rules.layout != TokenLayout::window) {
    throw nb::value_error("documents: only in the layout window");
  }
  if (width < (rules.layout == TokenLayout::pack ? 0 : 1)) throw nb::value_error("width < 1");
  if (rows < 0 || (rows > 0 && (rules.layout != TokenLayout::pack || width == 0))) {
    throw nb::value_error("rows < 0, or of no layout that has rows of one width");
  }
  if (rows > 0 && width > most_tokens / rows) throw nb::value_error("rows * width >= 2**31");
  new (self) TokenFiller(rules, std::move(pool), std::move(ring), std::move(from_dlpack),
                         std::move(pinned));
}

nb::object batches(nb::handle_t<TokenFiller> self, const Spans& spans, const Int64s& cuts,
                   bool verify, std::vector<Spans> beside, std::optional<Labels> labels,
                   nb::object label_of, nb::object columns_of, std::optional<Int32s> unread,
                   std::size_t job_bytes, nb::object proof, nb::object repair,
                   std::optional<std::tuple<Int64s, Int64s, Int64s, Int64s>> given) {
  const std::size_t count = spans.size();
  expect_length("shard", spans.shard.size(), count);
  expect_length("sizes", spans.sizes.size(), count);
  std::optional<TokenPieces> pieces;
  if (given) {
    const auto& [piece_cuts, starts, sizes, origins] = *given;
    expect_cuts(piece_cuts, count);
    expect_length("pieces: starts", starts.size(), count);
    expect_length("pieces: sizes", sizes.size(), count);
    expect_length("pieces: origins", origins.size(), count);
    for (std::size_t i = 0; i < count; ++i) {
      if (sizes.data()[i] < 0) throw nb::value_error("pieces: a size below 0");
    }
    if ((!beside.empty() || labels) && piece_cuts.size() - 1 != count) {
      throw nb::value_error("pieces: what lies beside them needs one a sample");
    }
    const auto& rules = nb::cast<TokenFiller&>(self).rules;
    if (rules.longest != 0) throw nb::value_error("pieces: a longest of 0 alone goes with them");
    pieces = TokenPieces{piece_cuts, starts, sizes, origins};
  }
  expect_cuts(cuts, pieces ? pieces->cuts.size() - 1 : count);
  if (labels) {
    if (labels->ndim() < 1 || labels->ndim() > most_dimensions) {
      throw nb::value_error("labels: expected 1 to 8 axes");
    }
    expect_length("labels", labels->shape(0), count);
  }
  if (unread) expect_length("unread", unread->size(), count);
  Checksums checksums = spans.checksums(verify);
  (void)checked(checksums, count);
  expect_length("beside", beside.size(), nb::cast<TokenFiller&>(self).rules.beside.size());
  std::vector<Checksums> beside_checksums;
  for (const Spans& each : beside) {
    expect_length("beside", each.size(), count);
    expect_length("beside.shard", each.shard.size(), count);
    expect_length("beside.sizes", each.sizes.size(), count);
    beside_checksums.push_back(each.checksums(verify));
    (void)checked(beside_checksums.back(), count);
  }
  TokenRequest request{spans,
                       std::move(pieces),
                       cuts,
                       std::move(checksums),
                       std::move(beside),
                       std::move(beside_checksums),
                       std::move(labels),
                       std::move(label_of),
                       std::move(columns_of),
                       std::move(unread),
                       job_bytes};
  return nb::cast(
      new TokenBatches(nb::borrow(self), std::move(request), std::move(proof), std::move(repair)),
      nb::rv_policy::take_ownership);
}

}  // namespace

void bind_token_batches(nb::module_& m) {
  nb::class_<TokenBatches, BatchGroup>(m, "TokenBatches", nb::is_weak_referenceable(),
                                       nb::type_slots(traversed<TokenBatches>),
                                       "Batches of token ids on their way: see TokenFiller.")
      .def("begin", &TokenBatches::begin, "k"_a, nb::lock_self(), "Have threads work on batch k.")
      .def("cancel", &TokenBatches::cancel, nb::lock_self(), "Let go of whatever is under way.")
      .def("status", &TokenBatches::status, "k"_a, nb::lock_self(),
           nb::sig("def status(self, k: int) -> NDArray[np.int32]"),
           "Wait for batch k, and return the status of its samples. ValueError where it does not\n"
           "fit its layout. Batches must be asked for in order.")
      .def("take", &TokenBatches::take, "k"_a, nb::lock_self(),
           nb::sig("def take(self, k: int) -> tuple[dict[str, Any], int, int, int, int]"),
           "Batch k, for which ``status`` has waited, whatever that was; its samples, its bytes,\n"
           "its tokens and its slots.");

  nb::class_<TokenFiller>(
      m, "TokenFiller",
      "Makes batches of token ids, on the threads of ``pool``, in memory of ``ring``.\n\n"
      "``layout`` and ``width``: \"pad\" to the longest of a batch, rounded up to a multiple;\n"
      "\"pack\" into as many tokens, 0 for as many as there are; \"chunk\" into rows of as many;\n"
      "\"window\" into rows of as many, one for each sample, with positions and numbers of\n"
      "``documents`` where asked for. Of samples of more than ``longest`` tokens, if that is not "
      "0,\n"
      "the first are laid out.\n"
      "``at_end`` pads before the tokens. ``beside`` are fields with a value for each id: their\n"
      "names in a batch, \"copy\", \"widen\" (ids) or \"loss\" (runs that become labels), the "
      "type\n"
      "as stored (\"f4\") and the bytes of a slot of padding. ``from_dlpack`` is torch's,\n"
      "or ``array_from_dlpack``. ``pinned``, if not None,\n"
      "gives memory in place of the ring: ``take(nbytes)`` a tensor, and ``view(tensor, start,\n"
      "dtype, shape)`` a part of it.")
      .def("__init__", &make_filler, "layout"_a, "width"_a, nb::kw_only(), "rows"_a, "pad_id"_a,
           "at_end"_a, "item_bytes"_a, "vocabulary"_a, "beside"_a, "pool"_a, "ring"_a.none(),
           "from_dlpack"_a, "pinned"_a.none() = nb::none(), "documents"_a = false, "longest"_a = 0,
           nb::sig(
               "def __init__(self, layout: str, width: int, *, rows: int, pad_id: int, at_end: "
               "bool, "
               "item_bytes: int, vocabulary: int, beside: Sequence[tuple[str, str, str, bytes]], "
               "pool: ThreadPool, ring: "
               "BufferRing | None, "
               "from_dlpack: Callable[[Any], Any], pinned: Any = None, documents: bool = False, "
               "longest: int = 0) -> None"))
      .def(
          "batches", &batches, "spans"_a, "cuts"_a.noconvert(), nb::kw_only(), "verify"_a,
          "beside"_a = nb::list(), "labels"_a.noconvert().none() = nb::none(),
          "label_of"_a.none() = nb::none(), "columns_of"_a.none() = nb::none(),
          "unread"_a.noconvert().none() = nb::none(), "job_bytes"_a, "proof"_a.none() = nb::none(),
          "repair"_a.none() = nb::none(), "pieces"_a.none() = nb::none(),
          nb::sig("def batches(self, spans: Spans, cuts: NDArray[np.int64], *, verify: bool, "
                  "beside: Sequence[Spans] = ..., labels: NDArray[Any] | None = None, "
                  "label_of: Callable[[int, int], Any] | None = None, "
                  "columns_of: Callable[[int, int], dict[str, Any]] | None = None, "
                  "unread: NDArray[np.int32] | None = None, job_bytes: int, proof: Any = None, "
                  "repair: Callable[[int, NDArray[np.int32] | None], Any] | None = None, "
                  "pieces: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], "
                  "NDArray[np.int64]] | None = None) -> TokenBatches"),
          "Batch k is that of the spans ``cuts[k]`` up to ``cuts[k + 1]``, filled with others by\n"
          "jobs of about ``job_bytes``. ``labels`` has one row for each span, or\n"
          "``label_of(start, stop)`` makes those of a batch; ``columns_of`` what else it has, by\n"
          "name. ``unread`` is the status of spans\n"
          "that could not be read. ``repair(k, status)`` makes a batch with bad samples.\n"
          "With ``pieces``, sample i is several parts of spans: those from ``pieces[0][i]`` up to\n"
          "``pieces[0][i + 1]``. Part j is ``pieces[2][j]`` bytes from byte ``pieces[1][j]`` of "
          "span\n"
          "j on, whose CRC-32 is that of the whole span; its first position is ``pieces[3][j]``, "
          "0\n"
          "where a document begins. Where samples have one part each, so has what lies beside "
          "them.")
      .def_prop_ro("job_batches", &TokenFiller::job_batches,
                   "Batches that a job fills, on average.")
      .def_prop_ro("largest_bytes", &TokenFiller::largest, "The largest piece of memory taken.");
}

}  // namespace fastio::python
