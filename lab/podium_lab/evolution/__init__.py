"""An evolved coordinator: separable CMA-ES over few parameters, without gradients."""
