//! The web page, from one view model.
