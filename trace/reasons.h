// Why the prover makes no statement: one sentence each, kept in spmd's Fault.
#pragma once

namespace sumonce::trace {

inline constexpr char kUninitialised[] = "memory is read that no recorded operation has written";
inline constexpr char kOtherType[] = "memory is read as another type than it was written";
inline constexpr char kUnknownOrigin[] = "a tensor of unknown origin is read";
inline constexpr char kOutsideDiffers[] =
    "a tensor from outside differs between ranks or with the group's size, 1 included";
inline constexpr char kExtents[] = "the extents at the two sizes do not fit the state";
inline constexpr char kOtherPlace[] = "a part whose place changes with the group's size";
inline constexpr char kNoSingleDim[] = "a view does not keep the sharded dimension";
inline constexpr char kOneEntry[] = "one entry of a sharded dimension is taken";
inline constexpr char kCutAndJoined[] =
    "a sharded dimension is cut inside the shard and joined across ranks";
inline constexpr char kPartsDiffer[] = "parts in different states are joined";
inline constexpr char kMixedParts[] = "mixed use by rows: a complete and a partial part are joined";
inline constexpr char kUnknownOverlap[] =
    "views of one storage overlap in a way that is not followed";
inline constexpr char kRanksDiffer[] = "ranks read or write different parts";
inline constexpr char kNotZeroAround[] = "an own slice is written into what is not zero around it";
inline constexpr char kSlicesSideBySide[] = "the ranks' slices stand side by side, not joined";
inline constexpr char kOwnRangeAlone[] = "a look-up by own range is used without its mask";
inline constexpr char kRankNumber[] = "a number differs between ranks";
inline constexpr char kSizeNumber[] =
    "a number changes with the group's size, and as no power of it";
inline constexpr char kWholeNumber[] = "a number is used that the unsharded program does not have";
inline constexpr char kUndeclared[] = "the operation is not declared";
inline constexpr char kFormUndeclared[] = "this form of the operation is not declared";
inline constexpr char kOtherGroup[] = "a collective over another group than the axis";
inline constexpr char kNumberRead[] =
    "a number was read from what is no equal value, and Python goes on with it";
inline constexpr char kConstantAdded[] = "a constant is added to a scaled value or a partial one";

}  // namespace sumonce::trace
